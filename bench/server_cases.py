"""The cases on MariaDB and PostgreSQL, with RabbitMQ behind them.

The servers are started here, in folders of their own, and stopped at the end.
"""
import contextlib
import time

from cleanup_cases import AGE, CleanupCases
from harness import (HELD_RATE, Background, Cases, Failure, load,
                     processor_us, run, wait_for)
from ordered_cases import ORDERED_CASES, TOPOLOGY, OrderedCases
from server_databases import KINDS, servers
from worker_cases import WorkerCases

BODY_SIZE = 300
QUEUES = ("orders", "second")
NAME = "order.placed"  # of every message, and where it goes
HANDLED = "SELECT COALESCE(MAX(n), 0) FROM effect"
CONFIG = """\
databases:
  default: '{database}'
transports:
  outbox:
    dsn: doctrine://default?table_name=messenger_outbox&queue_name=outbox
    relay_to: amqp
{outbox}
  amqp: '{broker}'
  orders:
    dsn: '{broker}?queue=orders'
{orders}
  failed: doctrine://default?queue_name=failed
failure_transport: failed
message_broker:
  inbox:
    database: default
    message_types:
      order.placed: App\\Message\\OrderPlaced
""" + TOPOLOGY + """\
handlers:
  order.placed:
    {handler}
"""
SQL_HANDLER = "sql: INSERT INTO effect (id, body) VALUES (:id, :body)"
LONE = 20  # messages, of which each takes a minute


class ServerCases(CleanupCases, Cases, OrderedCases, WorkerCases):
    def __init__(self, kind, options, folder, report, programs):
        super().__init__(options, folder, report, programs)
        self.database = KINDS[kind]()
        self.rabbitmq = servers.RabbitMQ()
        try:
            self.database.start()
            self.rabbitmq.start()
            self.version = f"{self.database.version()}, RabbitMQ " + \
                self.rabbitmq.control("version").strip()
            self.config = self.write_config("run")
            self.database.make_tables()
            self.skirnir("setup")
            self.skirnir("setup-deduplication", "--force")
            self.skirnir("setup-amqp")
            self.purge()
            if self.counts:
                self.database.count_always()
        except BaseException:
            self.close()
            raise
        self.made = set()

    def close(self):
        try:
            self.rabbitmq.close()
        finally:
            self.database.close()

    # Small steps.

    def write_config(self, name, outbox="", orders="", handler=SQL_HANDLER):
        """outbox, orders: further lines for these transports."""
        file = self.folder / f"{name}.yaml"
        file.write_text(CONFIG.format(
            database=self.database.relay_url, broker=self.rabbitmq.url,
            outbox=outbox, orders=orders, handler=handler))
        return file

    def skirnir(self, *arguments):
        return run(self.programs.skirnir, *arguments, "-c", self.config)

    def purge(self):
        """How many messages were in the queues."""
        return int(run(self.programs.bench("purge"), self.rabbitmq.url,
                       *QUEUES))

    def fill(self, name, *fillings):
        """A table filled with (queue, rows, delay in seconds), made once."""
        if name not in self.made:
            self.database.stage(None)
            for filling in fillings:
                run(self.programs.bench("fill"), self.database.url, *filling)
            self.database.keep_as(name)
            self.made.add(name)
        return name

    def plain(self):
        return self.fill("plain", ("outbox", self.rows, 0))

    def start(self, name, *command):
        return Background(self.folder / name, *command)

    def publisher(self, rows, rate=0, dress="bare", exchange="",
                  keys=QUEUES[:1], size=BODY_SIZE):
        return [self.programs.bench("ceiling-publish"), self.rabbitmq.url,
                rows, rate, size, dress, exchange, *keys]

    def claimer(self):
        return [self.programs.bench("ceiling-claim"), self.database.url,
                self.rabbitmq.url, NAME, NAME]

    def relay_command(self, config=None):
        return [self.programs.skirnir, "relay", "outbox", "-c",
                config or self.config]

    def processor_us(self):
        """By server, with all its processes."""
        return {server.name: processor_us(
            servers.processes.living_in(server.folder))
            for server in (self.rabbitmq, self.database)}

    def watch(self, commands, watched, rows, feed=None, environment=None):
        """Runs commands to their end: rows per second, and the most memory
        that one of them had. feed: what gives them something to do; then they
        are stopped when all is done."""
        watch = self.start("watch", self.programs.bench("watch"), watched[0],
                           rows, *watched[1:])
        running, before = [watch], self.processor_us()
        asked = self.database.statements() if self.counts else 0
        try:
            for number, command in enumerate(commands):
                running.append(Background(self.folder / f"side-{number}",
                                          *command,
                                          environment=environment or
                                          self.counting()))
            if feed is None:
                for side in running[1:]:
                    side.wait()
                # All has arrived by now, or never will.
                wait_for(watch.has_ended, lambda: running[1].failure(
                    "ended before all was done"), 10)
            else:
                feed(running[1:])
                watch.wait()
                for side in running[1:]:
                    side.has_ended()
                    side.stop()
        finally:
            for background in running:
                background.end()
        self.costs = {who: (value - before[who]) / rows
                      for who, value in self.processor_us().items()}
        self.costs["itself"] = sum(side.processor_us
                                   for side in running[1:]) / rows
        if self.counts:
            self.take_counts(rows, self.database.statements() - asked)
        return (float(watch.text().split()[2]),
                max(side.most_memory for side in running[1:]))

    def watch_queues(self, commands, rows, queues=QUEUES, feed=None):
        return self.watch(commands, [self.rabbitmq.url, *queues], rows, feed)

    # Sides of a pair.

    def publish(self, rows=None, **how):
        """A1 with bare messages, or A2 with two keys."""
        rows = rows or self.rows
        keys = how.get("keys", QUEUES[:1])
        self.purge()
        rate = self.watch_queues([self.publisher(rows, **how)],
                                 rows * len(keys))[0]
        self.check_queues(rows * len(keys))
        return rate

    def publish_dressed(self):
        """Ceiling A1: the very messages that a relay sends."""
        return self.publish(dress="dressed", exchange=NAME, keys=[NAME])

    def check_queues(self, rows, most=None):
        count = self.purge()
        if not rows <= count <= (most or rows):
            raise Failure(f"{count} messages arrived, not {rows}")

    def drain(self, made, commands, rows, left=0, spare=0, session=False):
        """(rate, memory) of a drain of a copy of that table. left: rows that
        must stay. spare: messages that may come twice. session: another has a
        transaction open meanwhile."""
        self.purge()
        self.database.stage(made)
        other = self.database.open_session() if session else None
        try:
            result = self.watch_queues(commands, rows)
        finally:
            if other is not None:
                other.close()
        found = int(self.database.ask("SELECT COUNT(*) FROM messenger_outbox "
                                      "WHERE queue_name <> 'outbox.sent'"))
        if found != left:
            raise Failure(f"{found} rows are left in the outbox, not {left}")
        self.check_queues(rows, rows + spare)
        return result

    def relay(self, made, left=0, session=False):
        command = [*self.relay_command(), "--stop-when-empty"]
        return self.drain(made, [command], self.rows, left,
                          session=session)[0]

    def claim(self, loops):
        """Loops that meet publish a batch again."""
        return self.drain(self.plain(), [self.claimer()] * loops, self.rows,
                          spare=self.rows if loops > 1 else 0)[0]

    # Cases of the relay.

    def run_publish(self):
        """What RabbitMQ takes."""
        self.compare(
            f"publish: {self.rows:,} messages on each of two connections to "
            "two queues (A2) against one (A1), for information",
            self.publish, lambda: self.publish(keys=QUEUES))

    def run_plain(self):
        made = self.plain()
        self.compare(f"plain: the relay drains {self.rows:,} rows, against "
                     "A1; beside it A1 with bare messages",
                     self.publish_dressed, lambda: self.relay(made), 0.8,
                     self.publish)

    def run_claim(self):
        made = self.plain()
        self.compare("claim: the relay against one loop B, for information",
                     lambda: self.claim(1), lambda: self.relay(made))

    def run_shared(self):
        keys = run(self.programs.skirnir, "config", "keys")
        if "transports.*.claim" not in keys.split():
            self.title("shared: the program has no `claim` yet; loops B only")
            for loops in (1, 2):
                self.say(f"{loops} B: {self.claim(loops):9,.0f}/s")
            return
        for mode, relays in (("shared", 2), ("shared", 4), ("lease", 2)):
            config = self.write_config(mode, outbox=f"    claim: {mode}")
            self.compare(
                f"shared: {relays} relays with `claim: {mode}` against as many "
                "loops B", lambda many=relays: self.claim(many),
                lambda many=relays, config=config: self.drain(
                    self.plain(), [[*self.relay_command(config),
                                    "--stop-when-empty"]] * many,
                    self.rows)[0], 1.0)

    def run_scheduled(self):
        made = self.fill("scheduled", ("outbox", self.rows, 86400),
                         ("outbox", self.rows, 0))
        self.compare(f"scheduled: {self.rows:,} rows for tomorrow in front, "
                     "against A1", self.publish_dressed,
                     lambda: self.relay(made, self.rows), 0.5)

    def run_other_queue(self):
        others = self.rows * 10
        made = self.fill("others", ("other", others, 0),
                         ("outbox", self.rows, 0))
        self.compare(f"other-queue: {others:,} rows of another queue in "
                     "front, against A1", self.publish_dressed,
                     lambda: self.relay(made, others), 0.5)

    def run_open_read(self):
        made = self.plain()
        self.compare("open-read: another session's transaction, that has read "
                     "and written, open for the whole drain, against A1",
                     self.publish_dressed,
                     lambda: self.relay(made, session=True), 0.5)

    def make_old(self, rows):
        if "old" not in self.made:
            self.database.stage(None)
            for filling in (("outbox.sent", rows, 0),
                            ("outbox", self.rows, 0)):
                run(self.programs.bench("fill"), self.database.url, *filling)
            self.database.ask(AGE)
            self.database.keep_as("old")
            self.made.add("old")
        return "old"

    def ask_outbox(self, sql):
        return self.database.ask(sql)

    def drain_beside_old(self, made, config):
        command = [*self.relay_command(config), "--stop-when-empty"]
        return self.drain(made, [command], self.rows)[0]

    def run_memory(self):
        """Memory and rate do not depend on how much waits. Both sides send as
        many: RabbitMQ's own rate falls with the length of its queue."""
        plain, many = self.plain(), self.rows * 10
        waiting = self.fill("waiting", ("outbox", many, 0))

        def some():
            return [[*self.relay_command(), f"--limit={self.rows}"]]
        self.compare(
            f"memory: {self.rows:,} of {many:,} rows waiting against "
            f"{self.rows:,} of as many",
            lambda: self.drain(plain, some(), self.rows)[0],
            lambda: self.drain(waiting, some(), self.rows,
                               left=many - self.rows)[0], 0.8)
        _, most = self.drain(
            waiting, [[*self.relay_command(), "--stop-when-empty"]], many)
        self.say(f"VmHWM {most:.1f} MB after all of them; target under 32 MB: "
                 f"{'met' if most < 32 else 'MISSED'}")

    def measure_latency(self, count, pause_ms):
        """Milliseconds, and statements a second of the relay."""
        began, before = time.monotonic(), self.database.statements()
        *times, own = [int(word) for word in run(
            self.programs.bench("latency"), self.database.url,
            self.rabbitmq.url, QUEUES[0], count, pause_ms).split()]
        done = self.database.statements() - before
        if self.database.counts_by_session:
            done -= own
        return ([value / 1000 for value in times],
                done / (time.monotonic() - began))

    def relay_latency(self, configs, count, pause_ms):
        """(p50, p99, most, the application's p50 and p99 in ms; statements a
        second) beside a relay of each of these configurations."""
        self.purge()
        self.database.stage(None)
        relays = []
        try:
            for number, config in enumerate(configs):
                relays.append(self.start(f"relay-{number}",
                                         *self.relay_command(config)))
                relays[-1].wait_for_text("relay.active")
            return self.measure_latency(count, pause_ms)
        finally:
            for relay in relays:
                relay.stop()

    @contextlib.contextmanager
    def counting_statements(self):
        self.database.begin_counting()
        try:
            yield
        finally:
            self.database.end_counting()

    def run_latency(self):
        count = 500 if self.quick else 6000
        most50 = 2 if self.database.tells else 5
        self.title("latency: from the end of COMMIT to a consumer that "
                   "RabbitMQ pushes to")
        with self.counting_statements():
            for name in self.in_turns():
                times, statements = self.relay_latency([self.config], count, 10)
                p50, p99, most, publish50, publish99 = times
                self.say(
                    f"{name}{count:,} messages, 100/s as a Poisson process: "
                    f"p50 {p50:.1f} ms, p99 {p99:.1f} ms, most {most:.1f} ms "
                    f"(targets {most50} and 25); the application's "
                    f"transaction: p50 {publish50:.1f} ms, p99 "
                    f"{publish99:.1f} ms; {statements:.0f} statements/s "
                    f"(target 300); load {load()}")

    def run_latency_shared(self):
        """Of the half of the messages that is the other's, one relay sees
        nothing but that they are there."""
        shared = self.write_config("shared-latency", "    claim: shared")
        for rate in (20, 100):
            count = rate * (5 if self.quick else 20)
            self.title(f"latency-shared: {rate} messages a second, two relays "
                       "with `claim: shared` against one that is exclusive")
            ratios = []
            for number in range(1, self.pairs + 1):
                one = self.relay_latency([self.config], count,
                                         1000 // rate)[0]
                two = self.relay_latency([shared] * 2, count, 1000 // rate)[0]
                ratios.append(two[0] / one[0])
                self.say(f"pair {number}: p50 {one[0]:.1f} ms and {two[0]:.1f} "
                         f"ms, ratio {ratios[-1]:.2f}; p99 {one[1]:.1f} and "
                         f"{two[1]:.1f} ms")
            self.judge(ratios, 2.0, is_most=True)

    def run_lone(self):
        """After each silence one message; what is asked meanwhile."""
        silence_s, count = (5, 2) if self.quick else (60, LONE)
        self.title("lone: a message after silence, from the end of COMMIT to "
                   "a consumer that RabbitMQ pushes to")
        self.purge()
        self.database.stage(None)
        with self.counting_statements():
            relay = self.start("relay", *self.relay_command())
            try:
                relay.wait_for_text("relay.active")
                runs = [self.measure_latency(1, silence_s * 1000)
                        for _ in range(count)]
            finally:
                relay.stop()
        times = sorted(times[0] for times, _ in runs)
        statements = sum(asked for _, asked in runs) / count
        self.say(f"{count} messages, each after {silence_s} s: p50 "
                 f"{times[count // 2]:.1f} ms, most {times[-1]:.1f} ms "
                 "(targets 3 and 20 where the relay is told, 1000 by "
                 f"polling); {statements:.1f} statements/s; load {load()}")

    def run_application_told(self):
        """What listening to the log costs the application's inserts."""
        polls = self.folder / "polls.yaml"
        polls.write_text(self.config.read_text().replace(
            self.database.relay_url, self.database.relay_url + "?wake=poll"))

        def measure(config):
            self.purge()
            self.database.stage(None)
            return self.measure_application(
                self.start("beside", *self.relay_command(config)))
        self.compare_application(
            "application-told", "a relay that polls", lambda: measure(polls),
            lambda: measure(self.config), 1.1)

    def run_foreign(self):
        """What others write, and a relay that listens has to read past: with
        its ceiling, and with none."""
        self.title("foreign: transactions of other tables, and the processor "
                   "time of an idle relay for each")
        self.database.make_foreign()
        seconds = 3 if self.quick else 20
        for what, parameter in (("that polls", "?wake=poll"),
                                ("that listens", ""),
                                ("without a ceiling",
                                 f"?wake_ceiling={1 << 40}")):
            config = self.folder / "foreign.yaml"
            config.write_text(self.config.read_text().replace(
                self.database.relay_url, self.database.relay_url + parameter))
            self.database.stage(None)
            relay = self.start("relay", *self.relay_command(config))
            try:
                relay.wait_for_text("relay.active")
                before = processor_us([relay.process.pid])
                count = self.database.write_foreign(seconds)
                spent = processor_us([relay.process.pid]) - before
            finally:
                relay.stop()
            gave_up = relay.text().count("by=poll") - (what == "that polls")
            self.say(f"a relay {what}: {count / seconds:,.0f} transactions a "
                     f"second, {spent / count:.2f} us each, "
                     f"{spent / seconds / 1e4:.1f} % of a processor" +
                     ("; it went over to polling" if gave_up > 0 else ""))

    def run_application(self):
        """Its inserts, beside a relay and beside the same load on RabbitMQ."""
        ceiling = self.publisher(HELD_RATE * 60, rate=HELD_RATE,
                                 dress="dressed", exchange=NAME, keys=[NAME])

        def measure(command):
            self.purge()
            self.database.stage(None)
            return self.measure_application(self.start("beside", *command))
        self.compare_application("application", "A1", lambda: measure(ceiling),
                                 lambda: measure(self.relay_command()))

    # Cases of the consumer.

    def fill_queue(self, rows, size=BODY_SIZE):
        self.purge()
        run(*self.publisher(rows, dress="dressed", size=size))

    def consume(self, command, is_large=False, rows=None, size=BODY_SIZE):
        """(rate, memory)"""
        rows = rows or self.rows
        self.fill_queue(rows, size)
        if is_large:
            self.database.swap_remembered()
            self.database.forget_newest()
        else:
            self.database.empty_inbox()
            self.database.settle()
        try:
            result = self.watch([command], [self.database.url, HANDLED], rows)
            left = self.purge()
            if left != 0:
                raise Failure(f"{left} messages are left in the queue")
            return result
        finally:
            if is_large:
                self.database.swap_remembered()

    def consume_loop(self, batch, rows=None):
        return [self.programs.bench("ceiling-consume"), self.database.url,
                self.rabbitmq.url, QUEUES[0], rows or self.rows, batch]

    def consume_command(self, config=None):
        # Until all is handled: a queue that pushes looks empty at first.
        return [self.programs.skirnir, "consume", "orders", "-c",
                config or self.config, "--limit", self.rows]

    def can_consume(self):
        """Whether the program was built with a RabbitMQ to consume from."""
        self.purge()
        try:
            run(self.programs.skirnir, "consume", "orders", "-c", self.config,
                "--stop-when-empty")
        except Failure as failure:
            if "cannot consume" in str(failure):
                return False
            raise
        return True

    def compare_consume(self, title, batch, orders, target):
        loop = self.consume_loop(batch)
        if not self.can_consume():
            self.title(title)
            rates = [self.consume(loop)[0] for _ in range(self.pairs)]
            self.say("ceiling " + " ".join(f"{rate:,.0f}/s"
                                           for rate in rates) +
                     "; the program cannot do this yet")
            return
        config = self.write_config(f"batch-{batch}", orders=orders)
        self.compare(title, lambda: self.consume(loop)[0],
                     lambda: self.consume(self.consume_command(config))[0],
                     target)

    def run_consume(self):
        self.compare_consume(
            f"consume: {self.rows:,} messages with default settings, against "
            "100 in a transaction", 100, "", 0.8)

    def run_consume_one(self):
        self.compare_consume(
            f"consume-one: {self.rows:,} messages, each in a transaction of "
            "its own", 1, "    batch: 1", 0.9)

    def run_remembered(self):
        count = self.rows * 100
        title = f"remembered: {count:,} ids in the deduplication table, " \
            "against none"
        if "remembered" not in self.made:
            self.database.remember_many(count)
            self.made.add("remembered")
        command = self.consume_command()
        if not self.can_consume():
            title += "; the program cannot do this yet: the ceiling's own"
            command = self.consume_loop(100)
        self.compare(title, lambda: self.consume(command)[0],
                     lambda: self.consume(command, is_large=True)[0], 0.8)

    def run_consume_memory(self):
        self.title("consume-memory: messages of 1 kB, prefetch 500")
        if not self.can_consume():
            self.say("the program cannot do this yet")
            return
        memory = self.consume(self.consume_command(), size=1000)[1]
        self.say(f"VmHWM {memory:.1f} MB; target under 32 MB: "
                 f"{'met' if memory < 32 else 'MISSED'}")


ServerCases.CASES = {
    "publish": ServerCases.run_publish,
    "plain": ServerCases.run_plain,
    "claim": ServerCases.run_claim,
    "shared": ServerCases.run_shared,
    "scheduled": ServerCases.run_scheduled,
    "other-queue": ServerCases.run_other_queue,
    "open-read": ServerCases.run_open_read,
    "cleanup": ServerCases.run_cleanup,
    "memory": ServerCases.run_memory,
    "latency": ServerCases.run_latency,
    "latency-shared": ServerCases.run_latency_shared,
    "lone": ServerCases.run_lone,
    "application": ServerCases.run_application,
    **ORDERED_CASES,
    "consume": ServerCases.run_consume,
    "consume-one": ServerCases.run_consume_one,
    "remembered": ServerCases.run_remembered,
    "consume-memory": ServerCases.run_consume_memory,
    "workers": ServerCases.run_workers,
}
# On servers that are there for these alone.
ServerCases.WAITING_CASES = {
    **{name: ServerCases.CASES[name] for name in ("latency", "lone")},
    "application-told": ServerCases.run_application_told,
    "foreign": ServerCases.run_foreign,
}
