"""What the tests of the whole program share; shop.py explains itself."""
import pathlib
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parent / "integration"))

import places  # noqa: E402: found through the path above
import shop as shops  # noqa: E402
import worlds  # noqa: E402


def pytest_configure(config):
    config.addinivalue_line(
        "markers", "quick: of what needs Kafka, what runs always")


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


@pytest.fixture(params=worlds.DATABASES, ids=lambda kind: kind.kind)
def world(request, tmp_path, vhost):
    """An outbox in each of the servers, and RabbitMQ; nothing is set up."""
    opened = worlds.World(tmp_path, worlds.new_database(request.param), vhost)
    yield opened
    opened.leave()


@pytest.fixture(params=places.KINDS)
def any_world(request, tmp_path, vhost):
    """The same in a database of any kind."""
    database = places.open_database(request.param, tmp_path)
    opened = worlds.World(tmp_path, database, vhost)
    yield opened
    opened.leave()


@pytest.fixture(params=places.KINDS)
def place(request, tmp_path):
    """An outbox, a queue and failed messages in each kind of database."""
    database = places.open_database(request.param, tmp_path)
    opened = places.Place(tmp_path, database)
    opened.set_up()
    yield opened
    opened.leave()


def pytest_report_header():
    return [f"skirnir: {shops.PROGRAM}",
            f"long: {'yes' if shops.LONG else 'no'}"]
