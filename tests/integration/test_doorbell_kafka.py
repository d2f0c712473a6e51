"""A table kafka_outbox on a server with a binary log: its relay is woken as any
other."""
import time

import pytest

import databases
import kafka_outbox_world
import servers
import shop as shops

# A relay that polls looks every second.
SOON_S = 1


@pytest.mark.quick
def test_a_row_for_kafka_wakes_its_relay(tmp_path, monkeypatch):
    with servers.MariaDB(settings={"binlog-format": "ROW"}) as server:
        for name, value in server.environment().items():
            monkeypatch.setenv(name, value)
        world = kafka_outbox_world.World(tmp_path, databases.MariaDB())
        world.environment["POLL_FREQUENCY_MS"] = "1000"
        world.check("kafka-relay", "migrate")
        relay = world.start_relay()
        relay.wait_for(r'"database\.wake".*"by":"binlog"')

        def send_one():
            began = time.monotonic()
            world.insert_numbers(1)
            world.wait_until_done(relay)
            return time.monotonic() - began

        # A client program is started for each statement.
        assert min(send_one() for _ in range(5)) < SOON_S / 4
        assert relay.stop() == 0
        world.leave()
