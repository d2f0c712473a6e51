"""The cases of ordered outboxes on MariaDB and PostgreSQL.

All of them work on one table that has partition keys. An unordered relay works
on the same rows, and does not look at those.
"""
import statistics

from harness import Failure, run

OUTBOX = "ordered_outbox"
PARTITIONS = 1000
BATCH = 500
CLAIM_MS = 5
# Where messages go, in every configuration of servers.
TOPOLOGY = """\
message_broker_amqp:
  topology:
    exchanges:
      order.placed: {{type: topic}}
    queues: {{orders: ~}}
    bindings:
      - {{exchange: order.placed, queue: orders, binding_key: 'order.#'}}
"""
CONFIG = """\
databases:
  default: '{database}'
transports:
  outbox:
    dsn: '{scheme}://default?table_name=ordered_outbox&queue_name=outbox'
    relay_to: amqp
{outbox}
  amqp: '{broker}'
  failed: doctrine://default?queue_name=failed
failure_transport: failed
""" + TOPOLOGY
# Key of a row, by its number.
BY_TURNS = f"CONCAT('key-', seq % {PARTITIONS})"
ONE = "'one'"
EACH = "CONCAT('key-', seq)"


class OrderedCases:
    """Mixed into the cases of servers."""

    def ordered_config(self, name, scheme="ordered-doctrine", outbox=""):
        file = self.folder / f"ordered-{name}.yaml"
        file.write_text(CONFIG.format(
            database=self.database.relay_url, broker=self.rabbitmq.url,
            scheme=scheme, outbox=outbox))
        return file

    def fill_ordered(self, name, *fillings):
        """A table filled with (rows, key), made once. It is kept with its
        indexes: they are what is measured."""
        name = f"ordered_{name}"
        if name in self.made:
            return name
        run(self.programs.skirnir, "setup", "-c",
            self.ordered_config("setup", outbox="    claim: lease"))
        self.database.stage(None, OUTBOX)
        for rows, key in fillings:
            self.database.ask(
                f"INSERT INTO {OUTBOX} (body, headers, queue_name, "
                "partition_key, created_at, available_at) SELECT "
                "CONCAT('{\"n\":', seq, ',\"text\":\"', REPEAT('x', 270), "
                "'\"}'), '{\"type\":\"order.placed\"}', 'outbox', "
                f"{key}, {self.database.now}, {self.database.now} "
                f"FROM {self.database.numbers(rows)}")
        self.database.keep_as(name, OUTBOX)
        self.made.add(name)
        return name

    def by_turns(self):
        return self.fill_ordered("plain", (self.rows, BY_TURNS))

    def drain_ordered(self, made, config, rows=None, left=0, prepare=None):
        """Rows per second of a relay that drains a copy of that table.
        prepare: what is done to the copy first."""
        rows = rows or self.rows
        self.purge()
        self.database.stage(made, OUTBOX)
        if prepare is not None:
            self.database.ask(prepare)
        rate = self.watch_queues(
            [[*self.relay_command(config), "--stop-when-empty"]], rows)[0]
        self.check_emptied(left)
        self.check_queues(rows)
        return rate

    def feed_ordered(self, made, config, relays, sign):
        """Rows per second of relays that have said sign, each of them, when
        the rows of that table come."""
        def feed(sides):
            for side in sides:
                side.wait_for_text(sign)
            self.database.ask(f"INSERT INTO {OUTBOX} SELECT * FROM {made}")
        self.purge()
        self.database.stage(None, OUTBOX)
        rate = self.watch_queues([self.relay_command(config)] * relays,
                                 self.rows, feed=feed)[0]
        self.check_emptied(0)
        self.check_queues(self.rows)
        return rate

    def check_emptied(self, left):
        found = int(self.database.ask(f"SELECT COUNT(*) FROM {OUTBOX}"))
        if found != left:
            raise Failure(f"{found} rows are left in the outbox, not {left}")

    def run_ordered(self):
        made = self.by_turns()
        plain = self.ordered_config("unordered", "doctrine")
        ordered = self.ordered_config("exclusive")
        self.compare(
            f"ordered: the relay drains {self.rows:,} rows of "
            f"{PARTITIONS:,} partitions in order, against the same rows "
            "without order", lambda: self.drain_ordered(made, plain),
            lambda: self.drain_ordered(made, ordered), 0.9)

    def run_ordered_one(self):
        """Of a partition one message is under way at a time."""
        rows = max(self.rows // 10, 1000)
        made = self.fill_ordered("one", (rows, ONE))
        config = self.ordered_config("exclusive")
        self.compare(
            f"ordered-one: {rows:,} rows of one partition, against one "
            "message at a time, confirmed before the next",
            lambda: self.publish(rows, dress="alone", exchange="order.placed",
                                 keys=["order.placed"]),
            lambda: self.drain_ordered(made, config, rows), 0.9)

    def run_ordered_shared(self):
        """Both are there, and have their shares, before the first row."""
        each = self.fill_ordered("each", (self.rows, EACH))
        for made, partitions in ((self.by_turns(), PARTITIONS),
                                 (each, self.rows)):
            self.compare_shared(made, partitions)

    def compare_shared(self, made, partitions):
        alone = self.ordered_config("exclusive")
        shared = self.ordered_config("shared", outbox="    claim: shared")
        self.compare(
            f"ordered-shared: {partitions:,} partitions, two relays with "
            "`claim: shared` against one that is exclusive",
            lambda: self.feed_ordered(made, alone, 1, "relay.active"),
            lambda: self.feed_ordered(made, shared, 2, "slots=30"), 0.8)

    def run_ordered_claim(self):
        """How long a batch of 500 takes to claim, which may be several claims.
        """
        many = self.rows * 10
        broker_ms = BATCH / statistics.median(
            self.publish() for _ in range(self.pairs)) * 1000
        self.title(f"ordered-claim: a batch of {BATCH} rows; RabbitMQ takes "
                   f"{broker_ms:.1f} ms for as many")
        for number, (what, limit_ms, *fillings) in enumerate((
                (f"{self.rows:,} rows of {PARTITIONS:,} partitions", CLAIM_MS,
                 (self.rows, BY_TURNS)),
                (f"{many:,} rows of one partition before {many // 100:,} of "
                 "one row", broker_ms / 10, (many, ONE), (many // 100, EACH)),
                (f"{many:,} partitions of one row", broker_ms / 10,
                 (many, EACH)))):
            made = self.fill_ordered(f"claim_{number}", *fillings)
            for mode in ("exclusive", "divided"):
                self.database.stage(made, OUTBOX)
                claims = min(self.rows // BATCH // 2, 100)
                median, p99, most, rows = [int(word) for word in run(
                    self.programs.bench("claim-ordered"), self.database.url,
                    OUTBOX, mode, claims).split()]
                # One more is not timed.
                each = rows / (claims + 1)
                batch_ms = median / 1000 * BATCH / each
                verdict = "met" if batch_ms < limit_ms else "MISSED"
                self.say(f"{what}, {mode}: median {median / 1000:.2f} ms for "
                         f"{each:.0f} rows, p99 {p99 / 1000:.2f} ms, most "
                         f"{most / 1000:.2f} ms; {batch_ms:.2f} ms for {BATCH} "
                         f"rows, target {limit_ms:.1f} ms: {verdict}")

    def run_ordered_blocked(self):
        """One partition waits for people, and much behind its head."""
        many = self.rows * 10
        plain = self.by_turns()
        made = self.fill_ordered("blocked", (many, ONE), (self.rows, BY_TURNS))
        config = self.ordered_config("exclusive")
        block = (f"UPDATE {OUTBOX} SET available_at = '9999-12-31 23:59:59' "
                 f"WHERE id = (SELECT id FROM (SELECT MIN(id) AS id FROM "
                 f"{OUTBOX}) AS first)")
        self.compare(
            f"ordered-blocked: {many:,} rows behind a head that is blocked, "
            f"and {self.rows:,} of other partitions, against those alone",
            lambda: self.drain_ordered(plain, config),
            lambda: self.drain_ordered(made, config, left=many,
                                       prepare=block), 0.8)


ORDERED_CASES = {
    "ordered": OrderedCases.run_ordered,
    "ordered-one": OrderedCases.run_ordered_one,
    "ordered-shared": OrderedCases.run_ordered_shared,
    "ordered-claim": OrderedCases.run_ordered_claim,
    "ordered-blocked": OrderedCases.run_ordered_blocked,
}
