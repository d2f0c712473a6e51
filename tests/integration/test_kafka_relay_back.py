"""Going back: what kafka-outbox-relay finds, by its own statements, in a table
of its own that we have worked."""
import datetime
import json

import pytest

import databases
from kafka_outbox_world import AGO, OTHERS_TABLE, new_world

BATCH = "33333333-3333-3333-3333-333333333333"
VERSION = "20220408111504"
CLAIMABLE = """((batch_id IS NULL AND push_started_at IS NULL) OR
    (batch_id IS NOT NULL AND push_completed_at IS NULL AND
     push_started_at < '{ago}')) AND errored = 0 ORDER BY created_at ASC
    LIMIT 250"""
CLAIM = {
    "mysql": "UPDATE kafka_outbox SET batch_id = '{batch}', "
               f"push_started_at = NOW() WHERE {CLAIMABLE}",
    "postgresql": "UPDATE kafka_outbox SET batch_id = '{batch}', "
                  "push_started_at = NOW() WHERE id IN "
                  f"(SELECT id FROM kafka_outbox WHERE {CLAIMABLE})",
}
COMPLETE = ("UPDATE kafka_outbox SET push_completed_at = NOW(), "
            "error_reason = '', push_attempts = push_attempts + 1 "
            "WHERE id IN ({})")
FAIL = ("UPDATE kafka_outbox SET error_reason = 'no', errored = 0, "
        "push_started_at = NULL, batch_id = NULL, "
        "push_attempts = push_attempts + 1 WHERE id = {}")
CLEAN = "DELETE FROM kafka_outbox WHERE push_completed_at <= '{ago}'"


def ago(seconds):
    """As that relay binds it: in UTC."""
    return datetime.datetime.now(datetime.timezone.utc).replace(
        microsecond=0, tzinfo=None) - datetime.timedelta(seconds=seconds)


class GoRelay:
    def __init__(self, world):
        self.world = world

    def claim(self):
        """Ids and attempts of the rows of its next batch, by their numbers."""
        world = self.world
        claim = CLAIM[world.database.dialect]
        world.ask(claim.format(batch=BATCH, ago=ago(600)))
        rows = [line.split("\t") for line in world.ask(
            "SELECT CONCAT(id, '\t', push_attempts, '\t', payload_json, "
            "'\t', topic, payload_headers, partition_key, "
            f"{world.key()}) FROM kafka_outbox WHERE batch_id = '{BATCH}' "
            "AND push_completed_at IS NULL "
            "ORDER BY created_at ASC").splitlines()]
        return {json.loads(payload)["n"]: (int(row), int(attempts))
                for row, attempts, payload, _ in rows}

    def complete(self, rows):
        self.world.ask(COMPLETE.format(",".join(map(str, rows))))

    def clean(self):
        self.world.ask(CLEAN.format(ago=ago(3600)))


@pytest.fixture(params=databases.BY_KIND)
def world(request, tmp_path):
    opened = new_world(request.param, tmp_path)
    opened.ask(OTHERS_TABLE[opened.database.dialect])
    opened.ask("CREATE TABLE kafka_outbox_schema_migrations (version BIGINT "
               "NOT NULL PRIMARY KEY, dirty BOOLEAN NOT NULL)")
    opened.ask("INSERT INTO kafka_outbox_schema_migrations "
               f"VALUES ({VERSION}, false)")
    yield opened
    opened.leave()


def count(world, condition):
    return int(world.ask("SELECT COUNT(*) FROM kafka_outbox "
                         f"WHERE {condition}"))


@pytest.mark.quick
@pytest.mark.parametrize("on_success", ["mark", "delete"])
def test_the_other_relay_goes_on_where_we_stopped(world, on_success):
    world.environment["ON_SUCCESS"] = on_success
    world.insert_numbers(20)
    world.insert(("a b", '{"n": -1}', "{}", "", ""))
    world.drain()
    done = 20 if on_success == "mark" else 0
    assert count(world, "push_completed_at IS NOT NULL AND push_attempts = 1 "
                 "AND errored = 0") == done
    # It claims what came since, and nothing that we have dealt with.
    world.insert_numbers(10, 20)
    other = GoRelay(world)
    rows = other.claim()
    assert sorted(rows) == list(range(20, 30))
    assert {attempts for _, attempts in rows.values()} == {0}
    # One fails, and is claimed again.
    world.ask(FAIL.format(rows.pop(20)[0]))
    other.complete(row for row, _ in rows.values())
    again = other.claim()
    assert [(number, attempts) for number, (_, attempts) in again.items()] == \
        [(20, 1)]
    other.complete(row for row, _ in again.values())
    assert other.claim() == {}
    assert count(world, "errored = 1") == 1
    # It cleans up behind both of us, an hour later.
    other.clean()
    assert count(world, "push_completed_at IS NOT NULL") == done + 10
    world.ask("UPDATE kafka_outbox SET push_completed_at = "
              f"{AGO[world.database.dialect].format(3601)} "
              "WHERE push_completed_at IS NOT NULL")
    other.clean()
    assert count(world, "1 = 1") == 1
    assert world.ask("SELECT version FROM kafka_outbox_schema_migrations") == \
        VERSION
    # And here again: what it has sent is not sent once more.
    world.insert_numbers(5, 30)
    world.drain()
    assert sorted(world.numbers()) == [*range(20), *range(30, 35)]
