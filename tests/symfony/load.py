"""Publishers that never stop, Symfony's workers and Skirnir's relays behind
them, and a judge that counts: nothing is lost, and consumers of either kind, by
the same deduplication table, handle each order once."""
import contextlib
import subprocess

import shop as shops
import worlds

CHANGES = 10 if shops.LONG else 2
PUBLISHERS, PAUSE_MS = 2, 20
KEYS = 5  # partitions of an ordered outbox
# Symfony's takes tens of messages a second from a broker.
SYMFONY_CONSUMERS = 4
PROGRESS = 20  # orders that are placed between changes, at least
LEASE_S = 3
PATIENCE_S = 3 * shops.PATIENCE_S
WAITING = "queue_name = 'outbox' AND delivered_at IS NULL"
# With what is claimed, by the dead as well. Symfony dates what it has done with
# on MariaDB and MySQL far ahead, and deletes it later.
UNDONE = ("queue_name = 'outbox' AND (delivered_at IS NULL OR "
          "delivered_at < '9999-01-01')")


class Worker:
    """A worker of Symfony's that is started again when it ends by itself, as it
    does after its third deadlock."""

    def __init__(self, peer, transport):
        self.peer = peer
        self.transport = transport
        self.start()

    def start(self):
        self.process = self.peer.start_php("messenger:consume", self.transport,
                                           "--sleep=0.01")

    def supervise(self):
        if not self.process.is_running():
            log = self.process.log()
            assert "eadlock" in log or "could not serialize" in log, log
            self.start()


class Load:
    """Publishers and consumers, for as long as it is open."""

    def __init__(self, peer):
        self.peer = peer
        self.publishers = []
        self.workers = []

    def start(self, consumers):
        key = [f"--key={KEYS}"] if self.peer.ordered else []
        self.publishers = [
            self.peer.start_php("shop:send", 1_000_000, f"--pause={PAUSE_MS}",
                                f"--first={1_000_000 * number}", *key)
            for number in range(PUBLISHERS)]
        if "skirnir" in consumers:
            self.peer.start("consume", "orders")
        if "symfony" in consumers:
            for _ in range(SYMFONY_CONSUMERS):
                self.work("orders")
        shops.until(lambda: self.peer.left() > 0, self.peer.logs)

    def work(self, transport):
        worker = Worker(self.peer, transport)
        self.workers.append(worker)
        return worker

    def relay(self):
        relay = self.peer.start_relay()
        relay.wait_for(r"relay\.active")
        return relay

    def end(self, worker_or_relay, how):
        """An end that is asked for; another worker takes its place then."""
        process = worker_or_relay
        if worker_or_relay in self.workers:
            self.workers.remove(worker_or_relay)
            worker_or_relay.supervise()
            process = worker_or_relay.process
        else:
            assert process.is_running(), process.log()
        # PHP may lose a signal that comes while it starts.
        while process.is_running():
            process.process.send_signal(how)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.end(patience_s=1)

    def until(self, condition, what):
        def look():
            for worker in self.workers:
                worker.supervise()
            return condition()
        shops.until(look, lambda: f"{what}:\n{self.peer.logs()}", PATIENCE_S,
                    pause_s=0.05)

    def drain(self):
        """Until there is more, and it has been taken."""
        placed = self.placed()
        self.until(lambda: self.placed() >= placed + PROGRESS, "orders")
        newest = self.peer.ask("SELECT COALESCE(MAX(id), 0) FROM "
                               "messenger_outbox")
        self.until(lambda: self.peer.ask(
            f"SELECT COUNT(*) FROM messenger_outbox WHERE {WAITING} "
            f"AND id <= {newest}") == "0", f"rows up to {newest}")

    def placed(self):
        return int(self.peer.ask("SELECT COUNT(*) FROM orders"))

    def undelivered(self):
        """Messages that any queue of the virtual host holds, handed out or not.
        """
        return sum(map(int, worlds.control(
            "list_queues", "-p", self.peer.vhost, "messages",
            "--no-table-headers").split()))

    def judge(self):
        """The publishers have stopped; a relay still works."""
        for publisher in self.publishers:
            assert publisher.is_running(), publisher.log()
            publisher.kill()
        peer = self.peer
        placed = set(peer.ask("SELECT order_id FROM orders").split())
        # A double may come behind all others: until nothing is under way.
        self.until(lambda: peer.ask(f"SELECT COUNT(*) FROM messenger_outbox "
                                    f"WHERE {UNDONE}") == "0", "the outbox")
        self.until(lambda: peer.client.count("orders") == 0 and
                   self.undelivered() == 0, "the broker's queues")
        handled = [order for order, _ in peer.effects()]
        assert set(handled) == placed, "lost"
        assert len(handled) == len(placed), "handled twice"
        assert peer.failed() == []


@contextlib.contextmanager
def under(peer, claim, consumers):
    peer.set_config(claim=claim, lease_s=LEASE_S)
    peer.set_up()
    opened = Load(peer)
    opened.start(consumers)
    yield opened
    opened.judge()
