"""What the tests of the whole program share; shop.py explains itself."""
import pathlib
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parent / "integration"))

import shop as shops  # noqa: E402: found through the path above


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


def pytest_report_header():
    return [f"skirnir: {shops.PROGRAM}",
            f"long: {'yes' if shops.LONG else 'no'}"]
