"""Servers of a test's own, which may be killed, and databases on them."""
import contextlib
import pathlib
import sys
import uuid

import pytest

import databases

sys.path.insert(0, str(pathlib.Path(__file__).parents[1]))

import servers  # noqa: E402: found through the path above


def needs_mysql():
    """Skips the test where there is no MySQL."""
    try:
        servers.MySQL().find_programs()
    except servers.NotInstalled:
        pytest.skip(servers.MYSQL_IS_MISSING)


class Mortals(dict):
    """Servers by their names."""

    def __missing__(self, name):
        assert name == servers.MySQL.name
        pytest.skip(servers.MYSQL_IS_MISSING)


@contextlib.contextmanager
def start(*others):
    """A server for each kind of database, and the others that are named."""
    names = [*databases.BY_KIND, *others]
    try:
        servers.MySQL().find_programs()
    except servers.NotInstalled:
        names.remove(servers.MySQL.name)
    with servers.Group(",".join(names)) as group:
        yield Mortals((server.name, server) for server in group.servers)


class MortalDatabase:
    """A database on such a server, as worlds.World wants it."""

    def __init__(self, server):
        self.server = server
        self.kind = server.name
        self.dialect = databases.BY_KIND[self.kind].dialect
        self.name = f"skr_{uuid.uuid4().hex[:12]}"
        self.url = server.url.rsplit("/", 1)[0] + "/" + self.name
        self.ask(f"CREATE DATABASE {self.name}",
                 databases.BY_KIND[self.kind].maintenance)

    def ask(self, sql, database=None):
        return self.server.query(sql, database or self.name).strip()

    def drop(self):
        """It ends with its server."""
