"""Messages, a third of them twice, go from RabbitMQ to a handler in each kind
of database, while consumers, RabbitMQ and the database are killed again
and again: each message has one effect, and nothing is left anywhere.

One in fifty fails the first time that it is handled, so that rows of retries
are part of it. SKIRNIR_SEED repeats a run.
"""
import json
import os
import random
import threading
import time
import uuid

import pytest

import amqp_client
import databases
import places
import shop as shops
from mortals import MortalDatabase, servers
from test_servers_killed import mortals  # noqa: F401: a fixture

MESSAGES = 100_000 if shops.LONG else 3000
KILLS = 30 if shops.LONG else 6
RESTARTS = 3 if shops.LONG else 1  # of each server
DUPLICATES = 0.3  # of what is published
CONSUMERS = 3     # processes, of two consumers each
WINDOW = 200      # published before their confirms are waited for
FLAKY = 50
PATIENCE_S = 600 if shops.LONG else 120
PAUSE_S = 0.1     # between two looks: each is a process

# Where a consumer is killed, and at which visit at the latest.
FAILPOINTS = {"consumer.received": 5, "consumer.handled": 50,
              "consumer.committed": 5, "consumer.acked": 5,
              "consumer.retry_stored": 1}
CONFIG = """\
databases:
    default: '{database}'
transports:
    orders:
        dsn: '{broker}?queues[{queue}]='
        options: {{auto_setup: false}}
        retry_strategy: {{max_retries: 20, delay: 1}}
message_broker:
    inbox:
        deduplication: {{auto_setup: true}}
handlers:
    order.placed:
        sql: >
            INSERT INTO effects (message_id, body)
            SELECT :id_text, CASE WHEN :body LIKE '%flaky%'
            AND :headers NOT LIKE '%RedeliveryStamp%' THEN NULL
            ELSE :body END
"""


class Publisher(threading.Thread):
    """Publishes each message, and some of them again, until RabbitMQ has
    confirmed all. A connection that is lost means that what was not confirmed
    is published again."""

    def __init__(self, url, queue, rng):
        super().__init__(daemon=True)
        self.url, self.queue = url, queue
        self.sequence = self.plan(rng)
        self.limit = 0  # so many may be published
        self.sent = 0
        self.error = None

    @staticmethod
    def plan(rng):
        """Numbers of messages; each is there, and the rest are doubles, soon
        after the first or long after."""
        again = int(MESSAGES * DUPLICATES / (1 - DUPLICATES))
        places = [(number, number) for number in range(MESSAGES)]
        for _ in range(again):
            number = rng.randrange(MESSAGES)
            distance = rng.choice([1, 100, MESSAGES])
            places.append((number + rng.random() * distance, number))
        return [number for _, number in sorted(places)]

    def state(self):
        return f"published {self.sent} of {self.limit}, " \
            f"alive {self.is_alive()}, {self.error!r}"

    def allow(self, share):
        """Lets the next ones go; how many different ones will be there."""
        self.limit = int(len(self.sequence) * share)
        return len(set(self.sequence[:self.limit]))

    def run(self):
        at = 0
        while at < len(self.sequence):
            try:
                with amqp_client.Client(self.url) as client:
                    while at < len(self.sequence):
                        at += self.publish_some(client, at)
            except (OSError, amqp_client.Refused):
                time.sleep(PAUSE_S)  # RabbitMQ is away, and comes back
            except Exception as error:
                self.error = error
                return

    def publish_some(self, client, at):
        window = self.sequence[at:min(at + WINDOW, self.limit)]
        if not window:
            time.sleep(PAUSE_S / 10)
        for number in window:
            self.sent += 1
            self.publish(client, number)
        client.confirm()
        return len(window)

    def publish(self, client, number):
        body = {"n": number, **({"flaky": 1} if number % FLAKY == 0 else {})}
        client.publish(
            "", self.queue, json.dumps(body).encode(),
            {"type": ("S", "order.placed"),
             "X-Message-Id": ("S", str(uuid.UUID(int=number + 1)))})


class World(shops.Shop):
    def __init__(self, folder, database, rabbitmq, queue_type):
        super().__init__(folder)
        self.database = database
        self.rabbitmq = rabbitmq
        self.queue = f"orders-{uuid.uuid4().hex[:8]}"
        self.write_config(CONFIG.format(database=database.url,
                                        broker=rabbitmq.url,
                                        queue=self.queue))
        with amqp_client.Client(rabbitmq.url) as client:
            client.declare_queue(self.queue,
                                 arguments={"x-queue-type": queue_type})
        rabbitmq.keep_declarations()
        if queue_type == "quorum":
            shops.until(self.is_queue_on_disk, "a queue on the disk")
        self.check("setup")
        # Without a key: a second effect would show.
        database.ask("CREATE TABLE effects (message_id VARCHAR(36) NOT NULL, "
                     "body VARCHAR(200) NOT NULL)")
        self.consumers = [self.start_consumer("--consumers=2")
                          for _ in range(CONSUMERS)]

    def servers(self):
        """Those that may die."""
        return [server for server in (self.rabbitmq, self.database.server)
                if server is not None]

    def is_queue_on_disk(self):
        """RabbitMQ registers quorum queues in a file that it writes twice a
        second. Killed before, it never answers for that queue again."""
        return any(self.queue.encode() in path.read_bytes() for path in
                   self.rabbitmq.folder.glob("mnesia/**/names.dets"))

    def ask_number(self, sql):
        """-1: the server is away."""
        try:
            return int(self.database.ask(sql))
        except servers.ServerError:
            return -1

    def effects(self):
        return self.ask_number("SELECT COUNT(*) FROM effects")

    def rows(self, condition):
        return self.ask_number("SELECT COUNT(*) FROM messenger_messages "
                               f"WHERE queue_name {condition}")

    def attempts(self):
        return self.ask_number("SELECT COUNT(*) FROM skirnir_attempt")

    def waiting(self):
        try:
            with amqp_client.Client(self.rabbitmq.url) as client:
                return client.count(self.queue)
        except (OSError, amqp_client.Refused):
            return -1

    def state(self):
        return {"effects": self.effects(), "waiting": self.waiting(),
                "retries": self.rows("= 'orders.retry'"),
                "attempts": self.attempts()}

    def in_hand(self):
        """How many wait, how many are in hand, of how many consumers."""
        try:
            said = self.rabbitmq.control(
                "list_queues", "name", "messages_ready",
                "messages_unacknowledged", "consumers")
        except servers.ServerError as error:
            return repr(error)
        return [line.split()[1:] for line in said.splitlines()
                if line.startswith(self.queue)]

    def tell(self):
        """All that is known, the numbers first."""
        try:
            rows = [self.database.ask(sql) for sql in (
                "SELECT count, since FROM skirnir_attempt",
                "SELECT queue_name, available_at, delivered_at "
                "FROM messenger_messages")]
        except servers.ServerError as error:
            rows = error
        return f"{self.state()}, RabbitMQ {self.in_hand()}\n" \
            f"attempts and rows: {rows}\n{self.logs()}"

    def leave(self):
        self.close()
        with amqp_client.Client(self.rabbitmq.url) as client:
            client.delete_queue(self.queue)


class Killer:
    """Each kill comes while the next share of the messages is on its way."""

    def __init__(self, world, publisher, rng):
        self.world, self.publisher, self.rng = world, publisher, rng
        self.killed = self.held = self.restarted = 0

    def run(self):
        plan = [self.kill_at_failpoint] * (KILLS // 2)
        plan += [self.kill_by_chance] * (KILLS - KILLS // 2)
        for victim in self.world.servers():
            plan += [lambda victim=victim: self.restart(victim)] * RESTARTS
        self.rng.shuffle(plan)
        for number, kill in enumerate(plan):
            self.before = self.world.effects()
            self.share = (number + 1) / len(plan)
            kill()

    def release(self, condition=lambda: False, part=0.5):
        """The next share, until some of it has been handled."""
        goal = self.before + (self.publisher.allow(self.share) -
                              self.before) * part
        shops.until(lambda: condition() or self.world.effects() >= goal,
                    lambda: f"{goal} effects, {self.publisher.state()}; "
                    f"{self.world.tell()}",
                    PATIENCE_S, PAUSE_S / 4)

    def replace(self, place, **options):
        consumers = self.world.consumers
        consumers[place].kill()
        self.killed += 1
        consumers[place] = self.world.start_consumer("--consumers=2",
                                                     **options)

    def kill_by_chance(self):
        self.release(part=self.rng.random())
        self.replace(self.rng.randrange(CONSUMERS))

    def kill_at_failpoint(self):
        """Or by chance, should it not get there."""
        place = self.rng.randrange(CONSUMERS)
        failpoint = self.rng.choice(list(FAILPOINTS))
        visit = self.rng.randint(1, FAILPOINTS[failpoint])
        path = self.world.folder / f"held-{self.killed}"
        self.replace(place, environment={
            "SKIRNIR_FAILPOINT": f"{failpoint}:{visit}",
            "SKIRNIR_FAILPOINT_FILE": str(path)})
        self.world.consumers[place].wait_for(r"consumer\.ready")
        self.release(path.exists, 1)
        self.held += path.exists()
        self.replace(place)

    def restart(self, victim):
        self.release()
        victim.kill()
        victim.start()
        self.restarted += 1


def expect_ledger(world, publisher, killer):
    expected = {"effects": MESSAGES, "waiting": 0, "retries": 0,
                "attempts": 0}
    shops.until(
        lambda: world.effects() >= MESSAGES and world.state() == expected,
        lambda: f"{expected}, not {world.tell()}", PATIENCE_S, PAUSE_S)
    for consumer in world.consumers:
        assert consumer.stop() == 0, consumer.log()
    # Duplicates may have been in hand beside the last effect: they are back.
    world.check("consume", "orders", "--stop-when-empty",
                patience_s=PATIENCE_S)
    found = world.state()
    found["distinct"] = world.ask_number(
        "SELECT COUNT(DISTINCT message_id) FROM effects")
    found["failed"] = world.rows("<> 'orders.retry'")
    print(f"published {publisher.sent}, kills {killer.killed}, of which at a "
          f"failpoint {killer.held}, restarts {killer.restarted}, {found}")
    assert found == {**expected, "distinct": MESSAGES, "failed": 0}


def open_database(mortals, kind, folder):  # noqa: F811
    if kind in databases.BY_KIND:
        return MortalDatabase(mortals[kind])
    return databases.SQLite(folder)


QUEUES = [(kind, queue_type) for queue_type in ("quorum", "classic")
          for kind in databases.BY_KIND if shops.LONG or
          (kind, queue_type) != ("mysql", "classic")]


@pytest.mark.parametrize("database, queue_type", [
    *QUEUES, ("sqlite", "classic")])
def test_each_message_has_one_effect_whoever_dies(
        tmp_path, mortals, database, queue_type):  # noqa: F811
    seed = os.environ.get("SKIRNIR_SEED") or random.randrange(1 << 32)
    print(f"SKIRNIR_SEED={seed}")
    rng = random.Random(f"{seed}-{database}-{queue_type}")
    world = World(tmp_path, open_database(mortals, database, tmp_path),
                  mortals["rabbitmq"], queue_type)
    try:
        publisher = Publisher(world.rabbitmq.url, world.queue, rng)
        publisher.start()
        killer = Killer(world, publisher, rng)
        killer.run()
        publisher.join(PATIENCE_S)
        assert not publisher.is_alive() and publisher.error is None, \
            f"{publisher.state()}; {world.tell()}"
        expect_ledger(world, publisher, killer)
    finally:
        world.leave()
