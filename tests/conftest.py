"""What the tests of the whole program share; shop.py explains itself."""
import pathlib
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parent / "integration"))

import databases  # noqa: E402: found through the path above
import places  # noqa: E402
import shop as shops  # noqa: E402
import worlds  # noqa: E402


def pytest_configure(config):
    config.addinivalue_line(
        "markers", "quick: of what needs Kafka, what runs always")
    config.addinivalue_line(
        "markers", "alike: takes its time, and MySQL does what MariaDB does; "
        "there in long runs alone")
    config.addinivalue_line("markers", "long: there in long runs alone")


def is_on_mysql(item):
    return hasattr(item, "callspec") and any(
        getattr(value, "kind", value) == databases.MySQL.kind
        for value in item.callspec.params.values())


def pytest_collection_modifyitems(config, items):
    if shops.LONG:
        return
    left_out = [item for item in items if item.get_closest_marker("long") or
                item.get_closest_marker("alike") and is_on_mysql(item)]
    config.hook.pytest_deselected(items=left_out)
    items[:] = [item for item in items if item not in left_out]


@pytest.fixture
def shop(tmp_path):
    """An empty shop: a folder with a configuration, nothing set up yet."""
    opened = shops.Shop(tmp_path)
    yield opened
    opened.close()


@pytest.fixture
def ready_shop(shop):
    """A shop with all its tables."""
    shop.set_up()
    return shop


@pytest.fixture(scope="session")
def vhost():
    """A virtual host on RabbitMQ that is shared: leave nothing in it."""
    with worlds.new_vhost() as name:
        yield name


@pytest.fixture(params=databases.SERVERS, ids=lambda kind: kind.kind)
def world(request, tmp_path, vhost):
    """An outbox in each of the servers, and RabbitMQ; nothing is set up."""
    opened = worlds.World(tmp_path, request.param(), vhost)
    yield opened
    opened.leave()


@pytest.fixture(params=databases.KINDS)
def any_world(request, tmp_path, vhost):
    """The same in a database of any kind."""
    database = databases.open_database(request.param, tmp_path)
    opened = worlds.World(tmp_path, database, vhost)
    yield opened
    opened.leave()


@pytest.fixture(params=databases.KINDS)
def place(request, tmp_path):
    """An outbox, a queue and failed messages in each kind of database."""
    database = databases.open_database(request.param, tmp_path)
    opened = places.Place(tmp_path, database)
    opened.set_up()
    yield opened
    opened.leave()


def pytest_report_header():
    return [f"skirnir: {shops.PROGRAM}",
            f"long: {'yes' if shops.LONG else 'no'}"]
