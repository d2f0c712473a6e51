"""A primary of PostgreSQL and its standby under load: each is killed, frozen
and replaced by the other."""
import pytest

import load
import servers
import shop as shops


class Database:
    """Whichever of the two is the primary."""
    dialect = "postgresql"

    def __init__(self, pair):
        self.pair = pair
        # A server that hangs is left soon.
        self.url = pair.url + "?timeout=3&connect_timeout=3&lock_timeout=2"

    def ask(self, sql):
        return self.pair.primary.query(sql).strip()


@pytest.fixture
def pair():
    with servers.Pair() as started:
        yield started


@pytest.fixture
def world(tmp_path, pair):
    opened = load.World(tmp_path, Database(pair))
    yield opened
    opened.close()


def replace_primary(watch, pair, name, is_frozen=False):
    """The old one hangs or dies, and does not come back as it was."""
    with load.fault(watch, f"{name} {'frozen' if is_frozen else 'killed'} and "
                    "replaced"):
        if is_frozen:
            pair.primary.freeze()
            watch.wait_for_standstill()
        pair.fail_over()
    pair.rejoin()


def disturb(watch, node, name):
    """It comes back, and commits wait for it meanwhile."""
    with load.fault(watch, f"{name} killed and started"):
        node.kill()
        node.start()
    with load.fault(watch, f"{name} frozen for a while"):
        node.freeze()
        try:
            watch.wait_for_standstill()
        finally:
            node.thaw()


def test_nothing_is_lost_or_doubled_whichever_is_the_primary(world, pair):
    with load.load(world) as watch:
        replace_primary(watch, pair, "first")
        replace_primary(watch, pair, "second", is_frozen=True)
        if shops.LONG:
            for name in ("first", "second"):
                disturb(watch, pair.primary, f"primary, {name}")
                disturb(watch, pair.standby, f"standby of {name}")
                replace_primary(watch, pair, name)
