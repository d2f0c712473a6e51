"""A standby that lost its database and has it again is ready, long before it
becomes active."""
import pathlib
import re
import sys

import shop as shops
from outbox_world import world  # noqa: F401: a fixture
from test_metrics import get, port  # noqa: F401: a fixture

sys.path.insert(0, str(pathlib.Path(__file__).parents[1]))

import servers  # noqa: E402: found through the path above


def test_a_standby_that_has_its_database_again_is_ready(world, port):
    world.set_up()
    active = world.start("relay", "outbox")
    active.wait_for("relay.active")
    target = int(re.search(r":(\d+)/", world.server.url).group(1))
    with servers.Proxy(target) as proxy:
        other = world.folder / "other.yaml"
        other.write_text(world.config_path.read_text().replace(
            world.server.url, proxy.url(world.server.url)))
        standby = world.start("relay", "outbox", "--config", other,
                              f"--metrics-port={port}")
        ready = (200, "outbox: standby\n")
        standby.wait_for("relay.standby")
        # More than once: each trouble has its end, and is said.
        for times in (1, 2):
            shops.until(lambda: get(port, "/readyz") == ready, standby.log)
            proxy.refuse()
            proxy.cut()
            shops.until(lambda: get(port, "/readyz")[0] == 503, standby.log)
            proxy.accept()
            shops.until(lambda: get(port, "/readyz") == ready, standby.log)
            shops.until(lambda: len(standby.events("relay.recovered")) == times,
                        standby.log)
        assert active.is_running()
        assert not standby.events("relay.active")
        assert standby.stop() == 0
