"""MySQL as strict hosts configure it, a member of a replication group, and the
ways to log in there: a message goes the whole way, from outbox to handler, and
another fails and comes back."""
import contextlib
import json
import re
import uuid

import pytest

import mortals
import servers
import shop as shops

SETTINGS = {
    "sql-mode": "ANSI_QUOTES,NO_BACKSLASH_ESCAPES,STRICT_ALL_TABLES,"
                "ONLY_FULL_GROUP_BY,NO_ZERO_DATE,NO_ZERO_IN_DATE,"
                "ERROR_FOR_DIVISION_BY_ZERO,NO_ENGINE_SUBSTITUTION",
    "sql-require-primary-key": "ON",
    "lower-case-table-names": "1",
    "binlog-transaction-compression": "ON",
    # A group: what a transaction did that could not be repeated on the other
    # members is refused, also where there are none.
    "gtid-mode": "ON", "enforce-gtid-consistency": "ON", "server-id": "1",
    "plugin-load-add": "group_replication.so",
    "group-replication-group-name": str(uuid.uuid4()),
    "group-replication-start-on-boot": "OFF",
    "group-replication-bootstrap-group": "ON",
    "group-replication-ip-allowlist": "127.0.0.1",
}
# Of which each member may write.
SEVERAL_PRIMARIES = {
    "group-replication-single-primary-mode": "OFF",
    "group-replication-enforce-update-everywhere-checks": "ON",
}
CONFIG = """\
databases:
    default: '{url}'
failure_transport: failed
transports:
    outbox:
        dsn: '{scheme}://default?table_name=Messenger_Outbox&queue_name=outbox'
        relay_to: orders
        claim: {claim}
    orders:
        dsn: 'queue://default?queue_name=orders'
        retry_strategy: {{max_retries: 0}}
    failed: 'doctrine://default?queue_name=failed'
message_broker:
    inbox:
        deduplication: {{auto_setup: true}}
handlers:
    order.placed:
        sql: 'INSERT INTO Effects (id, body) VALUES (:id, :body)'
"""
BODY = json.dumps({"note": "it's \"quoted\", C:\\new\\table, 100 % \U0001f600"
                   }, ensure_ascii=False)
# Tables that group replication would not take.
WITHOUT_KEY = (
    "SELECT t.table_name FROM information_schema.tables t LEFT JOIN "
    "information_schema.table_constraints c ON c.table_schema = "
    "t.table_schema AND c.table_name = t.table_name AND "
    "c.constraint_type = 'PRIMARY KEY' WHERE t.table_schema = DATABASE() "
    "AND c.constraint_name IS NULL")
PASSWORD = "p@ss'w\"ord\\1"
ENCODED = "".join(f"%{ord(letter):02x}" for letter in PASSWORD)


@contextlib.contextmanager
def group(settings):
    mortals.needs_mysql()
    with servers.MySQL(tls=True, settings=settings) as started:
        started.query(
            "SET GLOBAL group_replication_local_address = '127.0.0.1:"
            f"{started.port_of('group')}'; START GROUP_REPLICATION")
        # The one that may write is elected.
        shops.until(lambda: started.query("SELECT @@GLOBAL.super_read_only")
                    == "0\n", "a primary")
        yield started


@pytest.fixture(scope="module")
def server():
    with group(SETTINGS) as started:
        yield started


@pytest.fixture(scope="module")
def one_of_several():
    with group({**SETTINGS, **SEVERAL_PRIMARIES}) as started:
        yield started


class Strict(shops.Shop):
    """A database, and a user who has rights in it and nowhere else."""

    def __init__(self, folder, server):
        super().__init__(folder)
        self.server = server
        self.name = f"skr_{uuid.uuid4().hex[:12]}"
        text = PASSWORD.replace("'", "''")
        server.query(
            f"CREATE DATABASE {self.name};"
            f"CREATE USER {self.name}@localhost IDENTIFIED WITH "
            f"caching_sha2_password BY '{text}';"
            f"GRANT ALL ON {self.name}.* TO {self.name}@localhost")
        self.set_config()

    def set_config(self, parameters="", scheme="doctrine", claim="exclusive",
                   password=ENCODED):
        self.write_config(CONFIG.format(
            scheme=scheme, claim=claim,
            url=f"mysql://{self.name}:{password}@127.0.0.1:"
                f"{self.server.port}/{self.name}{parameters}"))

    def ask(self, sql):
        return self.server.query(sql, self.name).strip()

    def leave(self):
        self.close()
        self.server.query(f"DROP DATABASE {self.name};"
                          f"DROP USER {self.name}@localhost")


@pytest.fixture
def strict(server, tmp_path):
    opened = Strict(tmp_path, server)
    yield opened
    opened.leave()


@pytest.fixture
def shared(one_of_several, tmp_path):
    opened = Strict(tmp_path, one_of_several)
    yield opened
    opened.leave()


def go_the_whole_way(strict, *key):
    strict.check("setup")
    strict.ask("CREATE TABLE Effects (id BINARY(16) PRIMARY KEY, "
               "body VARCHAR(1000) CHARACTER SET utf8mb4)")
    strict.check("publish", "order.placed", "--body", BODY, *key)
    strict.check("publish", "order.unknown", "--body", BODY, *key)
    strict.check("relay", "outbox", "--stop-when-empty")
    strict.check("consume", "orders", "--stop-when-empty")
    assert strict.ask("SELECT HEX(body) FROM Effects") == \
        BODY.encode().hex().upper()
    row, = json.loads(strict.check("failed", "show", "--json"))
    assert row["name"] == "order.unknown"
    strict.check("failed", "retry", "--all")
    strict.check("failed", "remove", "--all", "--force")
    strict.check("cleanup-outbox", "--days=0")
    stats = json.loads(strict.check("stats", "--json"))
    outbox = next(item for item in stats["transports"]
                  if item["transport"] == "outbox")
    assert (outbox["depth"], stats["failed"]) == (0, 0)


@pytest.mark.parametrize("scheme, claim", [
    ("doctrine", "exclusive"), ("doctrine", "lease"),
    ("doctrine", "shared"),
    ("ordered-doctrine", "shared")])
def test_strict_modes_and_a_user_without_process(strict, scheme, claim):
    strict.set_config(scheme=scheme, claim=claim)
    key = ["--partition-key=customer-1"] if "ordered" in scheme else []
    go_the_whole_way(strict, *key)
    assert strict.ask(WITHOUT_KEY) == ""


@pytest.mark.parametrize("scheme, claim", [
    ("doctrine", "lease"), ("doctrine", "shared"),
    ("ordered-doctrine", "shared")])
def test_one_of_several_primaries_works_by_leases(shared, scheme, claim):
    """No other member knows its locks: what is written tells them, and reads
    wait for what the others have committed."""
    shared.set_config(scheme=scheme, claim=claim)
    shared.server.query("SET GLOBAL general_log_file = 'asked'; "
                        "SET GLOBAL general_log = ON")
    key = ["--partition-key=customer-1"] if "ordered" in scheme else []
    go_the_whole_way(shared, *key)
    shared.server.query("SET GLOBAL general_log = OFF")
    asked = (shared.server.folder / "data/asked").read_text(errors="replace")
    assert "group_replication_consistency = 'BEFORE'" in asked
    if "ordered" in scheme:
        assert re.search(r"UPDATE skirnir_lease.*expires_at = CASE WHEN",
                         asked)
    assert "GET_LOCK" not in asked


def test_one_of_several_primaries_refuses_what_a_lock_would_guard(shared):
    shared.check("setup")
    relay = shared.start("relay", "outbox")
    assert relay.end() != 0
    assert re.search(r"skirnir relay: .*several primaries.*claim: shared",
                     relay.log())
    assert not relay.events("relay.active")


def test_the_table_of_kafkas_relay_is_made_there_too(strict):
    strict.environment.update({
        "DB_DRIVER": "mysql", "DB_HOST": "127.0.0.1", "DB_NAME": strict.name,
        "DB_PORT": str(strict.server.port), "DB_USER": strict.name,
        "DB_PASS": PASSWORD, "KAFKA_HOST": "127.0.0.1:1"})
    strict.check("kafka-relay", "migrate")
    strict.ask("INSERT INTO kafka_outbox (topic, payload_json, "
               "payload_headers) VALUES ('orders', '{}', '{}')")
    assert strict.ask(WITHOUT_KEY) == ""


def test_a_table_is_one_queue_however_its_name_is_spelt(strict):
    """The server tells small letters from capitals nowhere."""
    strict.check("setup")
    first = strict.start("relay", "outbox")
    first.wait_for(r"relay\.active")
    text = strict.config_path.read_text()
    name = f"/{strict.name}'"
    assert "Messenger_Outbox" in text and name in text and name.islower()
    strict.write_config(text.replace("Messenger_Outbox", "messenger_OUTBOX")
                        .replace(name, name.upper()))
    second = strict.start("relay", "outbox")
    second.wait_for(r"relay\.standby")
    first.kill()
    second.wait_for(r"relay\.active")


def test_the_group_refuses_a_table_without_a_key(server):
    """Else what is shown here would show nothing of a group."""
    assert server.query("SELECT member_state FROM performance_schema."
                        "replication_group_members").strip() == "ONLINE"
    server.query("SET SESSION sql_require_primary_key = OFF; "
                 "CREATE TABLE keyless (number INT)", "skirnir")
    with pytest.raises(servers.ServerError, match="ERROR 3098"):
        server.query("INSERT INTO keyless VALUES (1)", "skirnir")


@pytest.mark.parametrize("parameters, is_encrypted", [
    ("", False), ("?ssl=0", False), ("?ssl=1&ssl_verify=0", True)])
def test_a_first_login_by_caching_sha2_password(strict, parameters,
                                                is_encrypted):
    """The server knows nothing of the password by heart: without TLS it comes
    encrypted by the server's own key."""
    strict.server.query("FLUSH PRIVILEGES")
    strict.set_config(parameters)
    strict.check("setup")
    relay = strict.start("relay", "outbox")
    relay.wait_for(r"relay\.active")
    types = strict.ask(
        "SELECT DISTINCT connection_type FROM performance_schema.threads "
        f"WHERE processlist_user = '{strict.name}'")
    assert types == ("SSL/TLS" if is_encrypted else "TCP/IP")


@pytest.mark.parametrize("words, ready", [
    (("relay", "outbox"), "relay.active"),
    (("consume", "orders"), "consumer.ready")], ids=["relay", "consume"])
def test_a_rotated_password_is_picked_up(strict, words, ready):
    """From a file, as Docker, Kubernetes and systemd hand it over."""
    file = strict.folder / "password"
    file.write_text(PASSWORD + "\n")
    strict.environment["DB_PASSWORD_FILE"] = str(file)
    strict.set_config(password="%env(urlencode:file:DB_PASSWORD_FILE)%")
    strict.check("setup")
    strict.ask("CREATE TABLE Effects (id BINARY(16) PRIMARY KEY, "
               "body VARCHAR(1000) CHARACTER SET utf8mb4)")
    assert PASSWORD not in strict.check("config", "show")
    program = strict.start(*words)
    program.wait_for(ready)

    strict.server.query(f"ALTER USER {strict.name}@localhost IDENTIFIED BY "
                        "'another password'")

    def end_sessions():
        """One may end by itself meanwhile."""
        for session in strict.server.query(
                "SELECT id FROM information_schema.processlist WHERE user = "
                f"'{strict.name}'").split():
            with contextlib.suppress(servers.ServerError):
                strict.server.query(f"KILL {session}")
        return "Access denied" in program.log()
    shops.until(end_sessions, program.log)
    file.write_text("another password")
    program.wait_for(r"config\.reloaded")
    strict.check("publish", "order.placed", "--body", "{}")
    if words[0] == "consume":
        strict.check("relay", "outbox", "--stop-when-empty")
        shops.until(lambda: strict.ask("SELECT COUNT(*) FROM Effects") == "1",
                    program.log)
    shops.until(lambda: strict.ask("SELECT COUNT(*) FROM messenger_outbox")
                == "0", program.log)
    assert program.stop() == 0
    assert len(program.events("config.reloaded")) == 1


@pytest.mark.parametrize("has_process", [True, False])
def test_a_user_with_process_sees_who_is_open(strict, has_process):
    """Then the relay of an ordered outbox knows how far nothing can commit late
    any more, and says nothing; without the right it says so."""
    if has_process:
        strict.server.query(f"GRANT PROCESS ON *.* TO {strict.name}@localhost")
    strict.set_config(scheme="ordered-doctrine")
    strict.check("setup")
    strict.check("publish", "order.placed", "--body", "{}",
                 "--partition-key=customer-1")
    relay = strict.start("relay", "outbox", "--stop-when-empty")
    assert relay.end() == 0, relay.log()
    assert strict.ask("SELECT COUNT(*) FROM Messenger_Outbox") == "0"
    assert len(relay.events("relay.right_missing")) == \
        (0 if has_process else 1), relay.log()


def test_a_consumer_that_is_frozen_in_a_handler_is_bounded(strict):
    """By its session's limit, as MySQL has none for transactions. While nothing
    comes the session rests for as long as any other."""
    strict.check("setup")
    strict.ask("CREATE TABLE Effects (id BINARY(16) PRIMARY KEY, "
               "body VARCHAR(1000) CHARACTER SET utf8mb4)")
    strict.check("publish", "order.placed", "--body", BODY)
    strict.check("relay", "outbox", "--stop-when-empty")
    # Twice the timeout, beside what is usual.
    bounds = ("SELECT DISTINCT variable_value FROM performance_schema."
              "variables_by_thread JOIN performance_schema.threads "
              "USING (thread_id) WHERE variable_name = 'wait_timeout' AND "
              f"processlist_user = '{strict.name}' ORDER BY 1 DESC")
    usual = strict.ask("SELECT @@GLOBAL.wait_timeout")
    frozen = strict.hold_at("consumer.handled", "consume", "orders")
    assert "60" in strict.server.query(bounds).split()
    frozen.kill()
    strict.ask("UPDATE messenger_messages SET delivered_at = NULL")
    consumer = strict.start("consume", "orders")
    shops.until(lambda: strict.ask("SELECT COUNT(*) FROM Effects") == "1",
                consumer.log)
    # Long before the server would end a session that is bounded.
    shops.until(lambda: strict.server.query(bounds).split() == [usual],
                consumer.log, patience_s=30)
    assert consumer.stop() == 0
    assert not consumer.events("consumer.trouble")
