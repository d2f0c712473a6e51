"""skirnir test-inbox-dedup: it tells what is so, and leaves nothing behind."""
import json
import os
import pathlib
import re
import signal
import uuid

import pytest

import databases
import shop as shops
import worlds


def traces(shop):
    return (shop.count("queue", "messenger_messages"),
            shop.count("billing", "message_broker_deduplication"),
            shop.count("billing", "effects"), len(shop.failed()))


@pytest.mark.parametrize("name", ["test-inbox-dedup", "fsm:test-inbox-dedup"])
def test_three_messages_have_one_effect(ready_shop, name):
    said = ready_shop.check(name)
    assert "published: 3 identical messages" in said
    assert "1 handled, 2 skipped" in said
    assert "effects in the database: 1\n" in said
    assert traces(ready_shop) == (0, 0, 0, 0)


def test_messages_at_work_are_left_alone(ready_shop):
    shop = ready_shop
    shop.place_orders(5)
    assert shop.relay_all().returncode == 0
    shop.check("test-inbox-dedup", "orders")
    assert traces(shop) == (5, 0, 0, 0)
    assert shop.consume_all().returncode == 0
    shop.expect_effects_once()


def test_it_can_run_beside_itself_and_a_consumer(ready_shop):
    shop = ready_shop
    consumer = shop.start_consumer()
    consumer.wait_for("consumer.ready")
    started = [shop.start("test-inbox-dedup") for _ in range(4)]
    assert [one.end() for one in started] == [0] * 4, shop.logs()
    assert consumer.stop() == 0
    assert traces(shop) == (0, 0, 0, 0)


def has_open(process, name):
    try:
        return any(path.is_symlink() and name in os.readlink(path) for path in
                   pathlib.Path(f"/proc/{process.pid}/fd").iterdir())
    except OSError:
        return False


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("held_up_in", ["queue", "billing"])
def test_interrupted_it_cleans_up(ready_shop, held_up_in, number):
    """While it waits for a lock, to publish or to handle."""
    shop = ready_shop
    lock = shop.open(held_up_in)
    lock.execute("BEGIN IMMEDIATE")
    trial = shop.start("test-inbox-dedup")
    shops.until(lambda: has_open(trial, f"{held_up_in}.db"), trial.log)
    trial.process.send_signal(number)
    lock.execute("ROLLBACK")
    assert trial.end() == 1
    assert "interrupted" in trial.log()
    assert traces(shop) == (0, 0, 0, 0)


def test_deduplication_that_does_not_work_is_told(ready_shop):
    """A table that forgets what it was given."""
    ready_shop.open("billing").execute("""
        CREATE TRIGGER forget AFTER INSERT ON message_broker_deduplication
        WHEN NEW.message_name = 'skirnir.test' BEGIN
            DELETE FROM message_broker_deduplication
            WHERE message_id = NEW.message_id;
        END""")
    result = ready_shop.run("test-inbox-dedup")
    assert result.returncode == 1
    assert "3 identical messages had 3 effects" in result.stderr
    assert traces(ready_shop) == (0, 0, 0, 0)


def test_without_its_table_it_says_what_to_do_and_leaves_nothing(ready_shop):
    ready_shop.open("billing").execute(
        "DROP TABLE message_broker_deduplication")
    result = ready_shop.run("test-inbox-dedup")
    assert result.returncode == 1
    assert "setup-deduplication --force" in result.stderr
    assert ready_shop.count("queue", "messenger_messages") == 0


@pytest.mark.parametrize("name, word", [
    ("outbox", "nothing consumes"), ("none", "none"),
    ("log", "no queue can be made .* queue:// or amqp://")])
def test_a_transport_that_will_not_do_is_refused(ready_shop, name, word):
    ready_shop.configure(replace=[("    orders:\n", """\
    log: 'kafka://127.0.0.1:1?topics=orders&group=billing'
    orders:
""")])
    result = ready_shop.run("test-inbox-dedup", name)
    assert result.returncode == 1
    assert re.search(word, result.stderr)
    # Where none is named it is passed over.
    assert "1 handled, 2 skipped" in ready_shop.check("test-inbox-dedup")


CONFIG = worlds.CONFIG.replace("    amqp: '{broker}'\n", """\
    amqp: '{broker}'
    work:
        dsn: '{broker}'
        options:
            exchange: {{name: order.placed, type: topic}}
            queues: {{orders: {{binding_keys: ['order.#']}}}}
""") + """\
message_broker:
    inbox: {{deduplication: {{auto_setup: true}}}}
"""


@pytest.fixture(scope="module")
def vhost():
    with worlds.new_vhost() as name:
        yield name


@pytest.fixture(params=databases.SERVERS)
def world(tmp_path, vhost, request):
    made = worlds.World(tmp_path, request.param(), vhost)
    made.set_config(CONFIG)
    made.set_up()
    yield made
    made.leave()


def trial_queue(said):
    return re.search(r"skirnir\.test\.\S+", said).group()


def test_on_a_server_the_queues_at_work_are_left_alone(world):
    world.insert(5)
    world.relay_all()
    retries = [(f'{{"n": {n}}}', json.dumps(
        {"type": "order.placed", "X-Message-Id": str(uuid.uuid4())}),
        f"{transport}.retry") for n, transport in enumerate(("work", "amqp"))]
    for body, headers, queue in retries:
        world.write((body, headers), queue=queue, table="messenger_messages")
    for transport in ("work", "amqp"):
        said = world.check("test-inbox-dedup", transport)
        assert "1 handled, 2 skipped" in said
        world.queues.add(trial_queue(said))
    assert world.take_numbers() == list(range(5))
    for queue in world.queues:
        assert world.take_all(queue) == []
    assert world.ask("SELECT COUNT(*) FROM "
                     "message_broker_deduplication") == "0"
    assert world.failed() == [(body, json.loads(headers), queue)
                              for body, headers, queue in retries]


FORBID = {
    "mysql": """
        CREATE TRIGGER forbid BEFORE INSERT ON message_broker_deduplication
        FOR EACH ROW SET NEW.message_name = IF(
            NEW.message_name = 'skirnir.test.effect', NULL, NEW.message_name)
        """,
    "postgresql": """
        ALTER TABLE message_broker_deduplication ADD CONSTRAINT forbid
        CHECK (message_name <> 'skirnir.test.effect')""",
}


def test_its_own_retries_are_removed_again(world):
    """Of an effect that the table does not take."""
    world.check("setup-deduplication", "--force")
    world.ask(FORBID[world.database.dialect])
    result = world.run("test-inbox-dedup", "work")
    assert result.returncode == 1
    assert "consumer.retry " in result.stderr
    assert "3 identical messages had 0 effects" in result.stderr
    queue = trial_queue(result.stdout)
    world.queues.add(queue)
    assert world.take_all(queue) == []
    assert world.failed() == []
    for table in ("message_broker_deduplication", "skirnir_attempt"):
        assert world.ask(f"SELECT COUNT(*) FROM {table}") == "0"
