"""Relays and consumers work with the rights that docs/production.md gives them,
and the application with its own."""
import subprocess
import uuid

import pytest

import databases
import places
import shop as shops
import test_guides

HEADINGS = {"postgresql": "Rights on PostgreSQL",
            "mysql": "Rights on MariaDB and MySQL"}


class Guarded(places.Place):
    """A database whose owner has made all tables. Of the users in the guide
    each has a name of its own here."""

    def __init__(self, folder, database):
        super().__init__(folder, database)
        self.use()
        self.set_up()
        self.ask("CREATE TABLE invoice (body VARCHAR(1000))")
        suffix = uuid.uuid4().hex[:8]
        self.users = {name: f"{name}_{suffix}"
                      for name in ("shop_app", "skirnir")}
        self.grant(test_guides.block("production.md", "sql",
                                     HEADINGS[database.dialect]))

    def grant(self, text):
        text = text.replace("shop_app", self.users["shop_app"])
        for mark in (" TO ", "ROLE ", "USER "):
            text = text.replace(f"{mark}skirnir",
                                f"{mark}{self.users['skirnir']}")
        self.ask(text)

    def use(self, *replace):
        self.set_config(replace=[("INTO effects", "INTO invoice"), *replace])

    def work_as_guarded(self, *replace):
        scheme, _, rest = self.database.url.partition("://")
        url = f"{scheme}://{self.users['skirnir']}:secret@" + \
            rest.partition("@")[2]
        self.use((self.database.url, url), *replace)

    def insert_as_application(self):
        statement = ("INSERT INTO messenger_outbox (body, headers, queue_name, "
                     "created_at, available_at) VALUES ('{}', "
                     "'{\"type\":\"order.placed\"}', 'outbox', "
                     f"{self.database.now}, {self.database.now})")
        user = self.users["shop_app"]
        if self.database.dialect == "postgresql":
            self.ask(f"SET ROLE {user}; {statement}")
            return
        command = self.database.command(self.database.name)
        command[command.index("-u") + 1] = user
        subprocess.run([*command, "-psecret"], input=statement, text=True,
                       check=True, timeout=shops.PATIENCE_S)

    def leave(self):
        kind, at = ("USER", "@'%'") if self.database.dialect == "mysql" \
            else ("ROLE", "")
        if kind == "ROLE":
            self.ask("DROP OWNED BY " + ", ".join(self.users.values()))
        for user in self.users.values():
            self.ask(f"DROP {kind} {user}{at}")
        super().leave()


@pytest.fixture(params=databases.SERVERS, ids=lambda kind: kind.kind)
def guarded(request, tmp_path):
    made = Guarded(tmp_path, request.param())
    yield made
    made.leave()


def test_the_rights_of_the_guide_are_enough(guarded):
    guarded.work_as_guarded()
    guarded.insert_as_application()
    guarded.check("relay", "outbox", "--stop-when-empty")
    guarded.check("consume", "orders", "--stop-when-empty")
    assert guarded.number("SELECT COUNT(*) FROM invoice") == 1
    # What fails is put aside, listed, sent back and removed.
    guarded.check("publish", "order.lost", "--body", "{}")
    guarded.check("relay", "outbox", "--stop-when-empty")
    guarded.check("consume", "orders", "--stop-when-empty")
    assert "order.lost" in guarded.check("failed", "show")
    guarded.check("failed", "retry", "--all")
    guarded.check("consume", "orders", "--stop-when-empty")
    guarded.check("failed", "remove", "--all", "--force")
    guarded.check("deduplication-cleanup", "--days=0")
    guarded.check("stats", "outbox", "orders")


def test_what_fails_is_kept_without_the_right_to_its_sequence(guarded):
    """Guides of earlier versions did not give it."""
    if guarded.database.dialect == "postgresql":
        guarded.ask("REVOKE USAGE ON SEQUENCE messenger_messages_id_seq FROM "
                    + guarded.users["skirnir"])
    guarded.work_as_guarded()
    guarded.check("publish", "order.lost", "--body", "{}")
    guarded.check("relay", "outbox", "--stop-when-empty")
    guarded.check("consume", "orders", "--stop-when-empty")
    assert "order.lost" in guarded.check("failed", "show")


SHARED = ("relay_to: orders", "relay_to: orders\n        claim: shared")
ORDERED = ("'doctrine://default?table_name=messenger_outbox",
           "'ordered-doctrine://default?table_name=messenger_outbox")


def test_relays_that_share_a_queue_need_its_leases_too(guarded):
    guarded.use(SHARED)
    guarded.check("setup")
    at = "@'%'" if guarded.database.dialect == "mysql" else ""
    guarded.grant("GRANT SELECT, INSERT, UPDATE, DELETE ON skirnir_lease TO "
                  f"skirnir{at}")
    guarded.work_as_guarded(SHARED)
    guarded.insert_as_application()
    guarded.check("relay", "outbox", "--stop-when-empty")
    assert len(guarded.rows("orders")) == 1


def test_an_ordered_outbox_needs_no_further_right(guarded):
    """PROCESS is wanted on MariaDB and MySQL, which the relay says."""
    guarded.use(ORDERED)
    guarded.check("setup")
    guarded.work_as_guarded(ORDERED)
    guarded.insert_as_application()
    guarded.check("publish", "order.placed", "--body", "{}",
                  "--partition-key", "order-1")
    result = guarded.run("relay", "outbox", "--stop-when-empty")
    assert result.returncode == 0, result.stderr
    assert ("relay.right_missing" in result.stderr) == \
        (guarded.database.dialect == "mysql")
    assert len(guarded.rows("orders")) == 2
