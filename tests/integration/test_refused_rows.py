"""Rows that the database refuses to delete or to change: a thousand good ones
behind them are delivered and leave, and a restart sends none of these again."""
import collections
import urllib.request

import shop as shops
from outbox_world import COLUMNS, PLAIN_TYPE, world  # noqa: F401
from test_metrics import free_port

GOOD = 1000
BAD = "bad"
# The row can be marked as done, and is not sent again.
FOREIGN_KEY = """
CREATE TABLE invoice (id INT PRIMARY KEY, message BIGINT NOT NULL,
    FOREIGN KEY (message) REFERENCES messenger_outbox (id));
INSERT INTO invoice SELECT 1, id FROM messenger_outbox WHERE body = 'bad';
"""
# Nothing can be written to the row.
TRIGGERS = {
    "mysql": """
DELIMITER //
CREATE TRIGGER no_update BEFORE UPDATE ON messenger_outbox FOR EACH ROW
IF OLD.body = 'bad' THEN SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'keep it';
END IF//
CREATE TRIGGER no_delete BEFORE DELETE ON messenger_outbox FOR EACH ROW
IF OLD.body = 'bad' THEN SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'keep it';
END IF//
""",
    "postgresql": """
CREATE FUNCTION keep_it() RETURNS trigger AS $$
BEGIN RAISE EXCEPTION 'keep it'; END $$ LANGUAGE plpgsql;
CREATE TRIGGER keep_it BEFORE UPDATE OR DELETE ON messenger_outbox FOR EACH ROW
WHEN (OLD.body = 'bad') EXECUTE FUNCTION keep_it();
"""}
ALLOW = {"mysql": "DROP TRIGGER no_update; DROP TRIGGER no_delete;",
         "postgresql": "DROP TRIGGER keep_it ON messenger_outbox;"}


def write(place, *bodies):
    now = place.server.now
    place.server.ask(f"INSERT INTO messenger_outbox {COLUMNS} VALUES " + ",".join(
        f"('{body}', '{PLAIN_TYPE}', 'outbox', {now}, {now})"
        for body in bodies))


def left(place):
    return int(place.server.ask("SELECT COUNT(*) FROM messenger_outbox"))


def arrivals(place):
    return collections.Counter(body for body, in place.queue.execute(
        "SELECT body FROM messenger_messages"))


def parked(port):
    page = urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics")
    (line,) = [line for line in page.read().decode().splitlines()
               if line.startswith("skirnir_relay_parked_rows{")]
    return int(line.split()[-1])


def numbered(first, count):
    return [f'{{"n":{number}}}' for number in range(first, first + count)]


def relay_past_the_bad_one(place, sent_before):
    """A relay, once all but the bad row have left."""
    port = free_port()
    relay = place.start_relay(f"--metrics-port={port}")
    shops.until(lambda: left(place) == 1, relay.log)
    good = numbered(0, sent_before)
    counted = arrivals(place)
    assert {body: counted[body] for body in good} == dict.fromkeys(good, 1)
    assert relay.events("relay.settle_trouble") == []
    return relay, port


def test_a_row_that_cannot_be_deleted_holds_up_nothing(world):  # noqa: F811
    world.set_up()
    write(world, *numbered(0, 10), BAD, *numbered(10, GOOD - 10))
    world.server.ask(FOREIGN_KEY)
    relay, port = relay_past_the_bad_one(world, GOOD)
    assert len(relay.events("relay.row_stays")) == 1
    assert parked(port) == 0
    assert relay.stop() == 0
    # The next relay knows that it is done.
    write(world, *numbered(GOOD, 1))
    relay, _ = relay_past_the_bad_one(world, GOOD + 1)
    assert relay.stop() == 0
    assert arrivals(world)[BAD] == 1


def test_a_row_that_cannot_be_changed_holds_up_nothing(world):  # noqa: F811
    world.set_up()
    write(world, *numbered(0, 10), BAD, *numbered(10, GOOD - 10))
    world.server.ask(TRIGGERS[world.server.dialect])
    relay, port = relay_past_the_bad_one(world, GOOD)
    assert len(relay.events("relay.row_parked")) == 1
    assert parked(port) == 1
    assert arrivals(world)[BAD] == 1
    assert relay.stop() == 0
    # This one does not know, and sends it once more: none of the others.
    write(world, *numbered(GOOD, 1))
    relay, port = relay_past_the_bad_one(world, GOOD + 1)
    shops.until(lambda: parked(port) == 1, relay.log)
    assert relay.stop() == 0
    assert arrivals(world)[BAD] == 2
    world.server.ask(ALLOW[world.server.dialect])
    world.check("relay", "outbox", "--stop-when-empty")
    assert left(world) == 0
    assert sum(arrivals(world).values()) == GOOD + 1 + 3
