"""Order beside the youngest open transactions, while the broker is silent: no
settle of the relay takes a number then, and the server's snapshot does not show
a transaction that began last and is still open. What it commits late goes
before what follows it."""
import collections
import json
import pathlib
import subprocess
import sys
import urllib.parse

import pytest

import aggregates
import databases
import outbox_world
import shop as shops
import worlds

sys.path.insert(0, str(pathlib.Path(__file__).parents[1]))

from servers.proxy import Proxy  # noqa: E402: found through the path above

KEYS = 200 if shops.LONG else 6
OPEN_S = 1.2  # of the younger transaction: the relay asks for open ones meanwhile
ORDERED = [("'doctrine://default?table_name=messenger_outbox",
            "'ordered-doctrine://default?table_name=messenger_outbox")]


class Session:
    """A connection that stays open. What it is told is done when it returns."""

    def __init__(self, database):
        self.said = 0
        self.client = subprocess.Popen(
            database.command(database.name), stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, text=True)

    def do(self, sql):
        self.said += 1
        self.client.stdin.write(f"{sql};\nSELECT 'said-{self.said}';\n")
        self.client.stdin.flush()
        for line in self.client.stdout:
            if line.strip() == f"said-{self.said}":
                return
        raise AssertionError(f"the session ended at: {sql}")

    def close(self):
        self.client.stdin.close()
        self.client.wait(shops.PATIENCE_S)


@pytest.fixture(params=databases.SERVERS, ids=lambda kind: kind.kind)
def ordered(request, tmp_path, vhost):
    opened = worlds.World(tmp_path, request.param(), vhost)
    yield opened
    opened.leave()


def message(database, key, number):
    body = json.dumps({"k": key, "n": number})
    return ("INSERT INTO messenger_outbox (body, headers, queue_name, "
            "partition_key, created_at, available_at) VALUES "
            f"('{body}', '{outbox_world.PLAIN_TYPE}', 'outbox', '{key}', "
            f"{database.now}, {database.now})")


def commit_out_of_order(database, key, older, younger, is_read):
    """Both are open; the older commits what comes second, and the relay reads
    on. Then the younger commits what comes first, and more follows it."""
    older.do("BEGIN")
    older.do(f"INSERT INTO numbered VALUES ('{key}')")
    younger.do("BEGIN")
    younger.do(message(database, key, 1))
    older.do(message(database, f"{key}-other", 1))
    older.do("COMMIT")
    is_read()
    younger.do(aggregates.SLEEP[database.dialect].format(OPEN_S))
    younger.do("COMMIT")
    older.do(message(database, key, 2))
    is_read()


class Silence:
    """The broker hears nothing and says nothing."""

    def __init__(self, proxy, relay):
        self.proxy, self.relay = proxy, relay
        self.held = 0

    def wait_for_more(self):
        """The relay has read on, and sends."""
        shops.until(lambda: self.proxy.waiting(to_server=True) > self.held,
                    self.relay.log)
        self.held = self.proxy.waiting(to_server=True)

    def __enter__(self):
        self.proxy.hold()
        return self

    def __exit__(self, *_):
        self.proxy.resume()


def judge(arrivals):
    numbers = collections.defaultdict(list)
    for body in arrivals:
        numbers[body["k"]].append(body["n"])
    wrong = {key: got for key, got in numbers.items()
             if list(dict.fromkeys(got)) != sorted(set(got))}
    assert wrong == {}, f"out of order: {wrong}"
    return numbers


def test_nothing_passes_what_the_youngest_transaction_commits(ordered):
    database = ordered.database
    arrivals = []
    port = urllib.parse.urlsplit(ordered.broker).port
    with Proxy(port) as proxy:
        ordered.set_config(replace=ORDERED, broker=proxy.url(ordered.broker))
        ordered.set_up()
        ordered.ask("CREATE TABLE numbered (name VARCHAR(40))")
        older, younger = Session(database), Session(database)
        relay = ordered.start_relay()
        # The exchange is known from here on: nothing is asked of the broker.
        older.do(message(database, "warm-up", 1))
        ordered.wait_until_empty(relay)
        for key in range(KEYS):
            # One at a time: a relay has few batches under way, and reads no
            # more until one is confirmed.
            with Silence(proxy, relay) as silence:
                commit_out_of_order(database, f"key-{key}", older, younger,
                                    silence.wait_for_more)
            ordered.wait_until_empty(relay)
            arrivals += [json.loads(taken.body)
                         for taken in ordered.take_all()]
        older.close()
        younger.close()
        assert relay.stop() == 0, relay.log()
    numbers = judge(arrivals)
    for key in range(KEYS):
        assert set(numbers[f"key-{key}"]) == {1, 2}
        assert set(numbers[f"key-{key}-other"]) == {1}
