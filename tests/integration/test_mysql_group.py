"""A MySQL group of two members that both may be written, each with a writer and a
relay of one ordered outbox: every message arrives, those of a key in order, and
one relay goes on when the other is killed."""
import json
import threading
import time
import uuid

import pytest

import mortals
import outbox_world
import servers
import shop as shops

KEYS, EACH = range(20), 40
# Leases run out after 15 seconds at most.
LIMIT_S = 40


class Member(servers.MySQL):
    def __init__(self, number, group):
        super().__init__(tls=True)
        self.number, self.group = number, group

    def options(self):
        return {
            **super().options(), "plugin-load-add": "group_replication.so",
            "server-id": self.number, "report-host": "127.0.0.1",
            "report-port": self.port, "gtid-mode": "ON",
            "enforce-gtid-consistency": "ON",
            "group-replication-group-name": self.group,
            "group-replication-start-on-boot": "OFF",
            "group-replication-single-primary-mode": "OFF",
            "group-replication-enforce-update-everywhere-checks": "ON",
            "group-replication-recovery-get-public-key": "ON",
            "group-replication-ip-allowlist": "127.0.0.1",
            "group-replication-local-address":
                f"127.0.0.1:{self.port_of('group')}"}


class Database:
    """The group, as one of its members."""
    now = "UTC_TIMESTAMP()"

    def __init__(self, member):
        self.member = member
        self.url = member.url + "?ssl_verify=0"

    def insert(self, keys, numbers):
        """One statement, and so one transaction, for each number."""
        self.member.query("; ".join(
            "INSERT INTO messenger_outbox (body, headers, queue_name, "
            "partition_key, created_at, available_at) VALUES " + ", ".join(
                f"('[{key}, {number}]', '{outbox_world.PLAIN_TYPE}', "
                f"'outbox', 'key-{key}', {self.now}, {self.now})"
                for key in keys)
            for number in numbers), "skirnir")


@pytest.fixture
def members():
    mortals.needs_mysql()
    group = str(uuid.uuid4())
    with Member(1, group) as first, Member(2, group) as second:
        both = first, second
        seeds = ",".join(f"127.0.0.1:{one.port_of('group')}" for one in both)
        for one in both:
            one.query("RESET BINARY LOGS AND GTIDS; SET GLOBAL "
                      f"group_replication_group_seeds = '{seeds}'; "
                      "CHANGE REPLICATION SOURCE TO SOURCE_USER = 'root' "
                      "FOR CHANNEL 'group_replication_recovery'")
        first.query("SET GLOBAL group_replication_bootstrap_group = ON; "
                    "START GROUP_REPLICATION; "
                    "SET GLOBAL group_replication_bootstrap_group = OFF")
        second.query("START GROUP_REPLICATION")
        shops.until(lambda: first.query(
            "SELECT COUNT(*) FROM performance_schema.replication_group_members "
            "WHERE member_state = 'ONLINE'") == "2\n", second.tail)
        yield both


def test_relays_on_two_members_share_an_ordered_outbox(members, tmp_path):
    worlds, databases = [], [Database(member) for member in members]
    for number, database in enumerate(databases):
        (tmp_path / str(number)).mkdir()
        worlds.append(outbox_world.World(
            tmp_path / str(number), database, "\n        claim: shared",
            "ordered-doctrine"))
    # They send into one queue.
    worlds[1].write_config(worlds[0].config_path.read_text().replace(
        databases[0].url, databases[1].url))
    worlds[0].set_up()

    def arrived():
        return [tuple(json.loads(body)) for body, in worlds[0].queue.execute(
            "SELECT body FROM messenger_messages ORDER BY id")]

    def wait_for_all(count):
        shops.until(lambda: len(set(arrived())) == count,
                    lambda: "\n".join(relay.log() for relay in relays))

    relays = [world.start("relay", "outbox") for world in worlds]
    for relay in relays:
        relay.wait_for(r"relay\.share .*slots=30 of=60")
    writers = [threading.Thread(target=database.insert, args=(keys, range(EACH)))
               for database, keys in zip(databases, (KEYS[:10], KEYS[10:]))]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    wait_for_all(len(KEYS) * EACH)
    first_seen = list(dict.fromkeys(arrived()))
    for key in KEYS:
        assert [number for one, number in first_seen if one == key] == \
            list(range(EACH))
    before = len(arrived())
    relays[0].kill()
    began = time.monotonic()
    databases[1].insert(KEYS, [EACH])
    wait_for_all(len(KEYS) * (EACH + 1))
    took_s = time.monotonic() - began
    print(f"{len(KEYS) * EACH} were sent {before} times, those that came later "
          f"{took_s:.1f} s after the kill, and {len(arrived())} in all")
    assert took_s < LIMIT_S
    for world in worlds:
        world.close()
