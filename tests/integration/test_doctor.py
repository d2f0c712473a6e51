"""`skirnir doctor`: a healthy system has no findings, and each fault that is
injected here is found by its name, with evidence, reason and cure."""
import json
import os
import subprocess

import pytest

import amqp_client
import databases
import places
import shop as shops
import worlds

pytestmark = pytest.mark.alike

CONFIG = """\
databases:
    default: '{database}'
failure_transport: failed
transports:
    outbox:
        dsn: '{scheme}://default?table_name=messenger_outbox&queue_name=outbox'
        relay_to: orders
    orders:
        dsn: '{orders}'
    failed: 'doctrine://default?queue_name=failed'
handlers:
    order.placed:
        sql: 'INSERT INTO effects (body) VALUES (:body)'
"""
HEADERS = '{"type":"order.placed"}'


class Patient(places.Place):
    def use(self, scheme="doctrine", orders="queue://default?queue_name=orders",
            replace=(), url=None):
        if url is not None:
            replace = [(self.database.url, url), *replace]
        self.set_config(CONFIG, replace, scheme=scheme, orders=orders)
        (self.folder / "skirnir.yaml").chmod(0o600)

    def set_up(self, **settings):
        self.use(**settings)
        super().set_up()
        self.check("setup", "--tune")

    def insert(self, queue="outbox", table="messenger_outbox", headers=HEADERS,
               body="{}", hours=0):
        """hours: how far from now it was written."""
        at = {"sqlite": f"datetime('now', '{hours} hours', '-1 minute')",
              "mysql": f"UTC_TIMESTAMP() + INTERVAL {hours} HOUR "
                       "- INTERVAL 1 MINUTE",
              "postgresql": "(now() AT TIME ZONE 'UTC') + INTERVAL "
                            f"'{hours} hours' - INTERVAL '1 minute'"
              }[self.database.dialect]
        self.database.ask(
            f"INSERT INTO {table} (body, headers, queue_name, created_at, "
            f"available_at) VALUES ('{body}', '{headers}', '{queue}', {at}, "
            f"{at})")

    def findings(self, *arguments):
        result = self.run("doctor", "--json", *arguments)
        assert result.returncode in (0, 1), result.stderr
        found = json.loads(result.stdout)
        for finding in found:
            assert all(finding[key] for key in (
                "check", "severity", "place", "evidence", "why", "cure"))
        serious = [finding for finding in found
                   if finding["severity"] != "advice"]
        assert result.returncode == (1 if serious else 0)
        return found

    def find(self, check, *arguments):
        """The only finding is that."""
        found = self.findings(*arguments)
        assert [finding["check"] for finding in found] == [check], found
        return found[0]


@pytest.fixture(params=databases.KINDS)
def any_patient(request, tmp_path):
    patient = Patient(tmp_path,
                      databases.open_database(request.param, tmp_path))
    yield patient
    patient.leave()


@pytest.fixture
def patient(tmp_path):
    made = Patient(tmp_path, databases.open_database("sqlite", tmp_path))
    yield made
    made.leave()


@pytest.fixture(params=databases.SERVERS, ids=lambda kind: kind.kind)
def server_patient(request, tmp_path):
    made = Patient(tmp_path, request.param())
    yield made
    made.leave()


@pytest.mark.parametrize("scheme", ["doctrine", "ordered-doctrine"])
def test_a_healthy_system_has_no_findings(any_patient, scheme):
    any_patient.set_up(scheme=scheme)
    assert any_patient.findings() == []
    assert any_patient.check("doctor") == "skirnir.yaml: nothing found\n"


def test_a_message_on_its_way_is_no_finding(patient):
    patient.set_up()
    patient.insert()
    assert patient.findings() == []


def test_findings_are_told_for_people(patient):
    patient.set_up()
    patient.database.ask("DROP TABLE messenger_outbox")
    result = patient.run("doctor")
    assert result.returncode == 1
    lines = result.stdout.splitlines()
    assert lines[0] == "error: table-missing: outbox"
    assert [line.split()[0] for line in lines[1:]] == \
        ["evidence", "why", "cure"]


def test_a_mistaken_file(patient):
    patient.use(replace=[("relay_to", "relay_too")])
    found = patient.findings()
    assert found[0]["check"] == "configuration"
    assert "relay_too" in found[0]["evidence"]
    assert found[0]["place"] == "skirnir.yaml:7"


def test_a_handler_that_cannot_work(patient):
    patient.set_up()
    patient.use(replace=[("INTO effects", "INTO nowhere")])
    assert "nowhere" in patient.find("configuration-doubt")["evidence"]


def test_a_command_that_is_not_there(patient):
    patient.set_up()
    patient.use(replace=[
        ("sql: 'INSERT INTO effects (body) VALUES (:body)'",
         "command: [./missing]")])
    assert "missing" in patient.find("configuration")["evidence"]


def test_a_doubtful_file(patient):
    patient.set_up()
    patient.use(replace=[("        relay_to: orders",
                          "        relay_to: orders\n        claim: locked")])
    patient.check("setup")
    assert "locked" in patient.find("configuration-doubt")["evidence"]


def test_a_readable_file_with_a_password(server_patient):
    scheme, _, rest = server_patient.database.url.partition("://")
    user, _, address = rest.partition("@")
    server_patient.set_up()
    server_patient.use(
        url=f"{scheme}://{user.partition(':')[0]}:secret@{address}")
    (server_patient.folder / "skirnir.yaml").chmod(0o644)
    found = {finding["check"]: finding for finding in
             server_patient.findings()}
    assert "its mode is 644" in found["file-mode"]["evidence"]
    (server_patient.folder / "skirnir.yaml").chmod(0o640)
    assert "file-mode" not in {finding["check"] for finding in
                               server_patient.findings()}


def test_records_that_go_before_the_last_retry(patient):
    patient.set_up()
    patient.use(replace=[
        ("databases:\n", "cleanup: {interval: 3600, deduplication_days: 1}\ndatabases:\n"),
        ("        dsn: 'queue:", "        retry_strategy: {max_retries: 5, "
         "delay: 43200000, multiplier: 1}\n        dsn: 'queue:")])
    found = patient.find("retention")
    assert found["place"] == "orders"
    assert "2 days" in found["evidence"]


def test_a_server_that_is_away(server_patient):
    url = server_patient.database.url
    address = url.partition("@")[2].partition("/")[0]
    server_patient.use(url=url.replace(address, "127.0.0.1:1"))
    found = {finding["check"]: finding for finding in
             server_patient.findings()}
    # The second: its handler's SQL could not be tried.
    assert set(found) == {"database", "configuration-doubt"}
    assert found["database"]["place"] == "default"
    assert "127.0.0.1:1" in found["database"]["evidence"]


def test_a_file_that_is_not_there(patient):
    patient.use()
    assert patient.find("database")["cure"] == "skirnir setup"


def test_a_journal_that_is_in_the_way(patient):
    patient.set_up()
    patient.database.ask("PRAGMA journal_mode = DELETE")
    found = patient.find("database-settings")
    assert found["severity"] == "advice"
    assert "WAL" in found["evidence"]


def test_a_transaction_that_stays_open(server_patient):
    server_patient.set_up()
    server_patient.database.send(
        "BEGIN; INSERT INTO effects (body) VALUES ('open')")
    # InnoDB looks for itself again when it was not asked for a tenth of a second.
    shops.until(lambda: [finding["check"] for finding in
                         server_patient.findings("--age=1")] ==
                ["transaction"],
                lambda: str(server_patient.findings("--age=1")), pause_s=0.3)
    assert server_patient.findings("--age=3600") == []


def test_tables_that_are_missing(any_patient):
    any_patient.set_up()
    any_patient.database.ask("DROP TABLE messenger_outbox")
    found = any_patient.find("table-missing")
    assert (found["place"], found["cure"]) == ("outbox", "skirnir setup")


@pytest.mark.parametrize("table", ["message_broker_deduplication",
                                   "skirnir_attempt"])
def test_tables_of_the_inbox_that_are_missing(any_patient, table):
    any_patient.set_up()
    any_patient.database.ask(f"DROP TABLE {table}")
    assert table in any_patient.find("deduplication-missing")["evidence"]


@pytest.mark.parametrize("table, column", [
    ("messenger_outbox", "available_at"),
    ("message_broker_deduplication", "processed_at")])
def test_tables_of_another_shape(any_patient, table, column):
    any_patient.set_up()
    any_patient.database.ask(f"ALTER TABLE {table} RENAME COLUMN {column} "
                             "TO gone")
    evidence = any_patient.find("table-shape")["evidence"]
    assert table in evidence and column in evidence


def test_a_table_that_uses_ids_again(patient):
    patient.set_up()
    patient.database.ask("DROP TABLE messenger_outbox")
    patient.database.ask("""
        CREATE TABLE messenger_outbox (
            id INTEGER PRIMARY KEY, body TEXT NOT NULL, headers TEXT NOT NULL,
            queue_name TEXT NOT NULL, created_at DATETIME NOT NULL,
            available_at DATETIME NOT NULL, delivered_at DATETIME)""")
    assert "AUTOINCREMENT" in patient.find("configuration")["evidence"]


def test_an_outbox_that_goes_nowhere(patient):
    patient.set_up()
    patient.use(replace=[("        relay_to: orders\n", "")])
    assert "relay_to" in patient.find("configuration")["evidence"]


SYMFONY = """\
framework:
    messenger:
        transports:
            async: {{dsn: 'doctrine://default', options: {{}}}}
            now: 'sync://'
        routing:
            'App\\Message': async
databases: {{default: '{database}'}}
"""


def test_what_is_for_symfony_alone_is_advice(patient):
    patient.write_config(SYMFONY.format(database=patient.database.url))
    patient.check("setup", "--tune")
    found = patient.findings()
    assert "configuration-symfony" in {finding["check"] for finding in found}
    assert {finding["severity"] for finding in found} == {"advice"}


def test_a_pipe_is_read_once(patient):
    patient.set_up()
    text = (patient.folder / "skirnir.yaml").read_text()
    pipe = patient.folder / "pipe.yaml"
    os.mkfifo(pipe, 0o644)
    with subprocess.Popen(patient.command("doctor", "--config=pipe.yaml"),
                          cwd=patient.folder, stdout=subprocess.PIPE,
                          text=True) as process:
        pipe.write_text(text)
        said, _ = process.communicate(timeout=shops.PATIENCE_S)
    assert said == "pipe.yaml: nothing found\n"


def test_an_index_that_is_missing(any_patient):
    any_patient.set_up()
    name = "messenger_outbox_idx_available_at"
    if any_patient.database.dialect == "mysql":
        any_patient.database.ask("DROP INDEX idx_available_at ON "
                                 "messenger_outbox")
    else:
        any_patient.database.ask(f"DROP INDEX {name}")
    found = any_patient.find("index-missing")
    assert "available_at" in found["evidence"]
    any_patient.check("setup")
    assert any_patient.findings() == []


def test_writers_in_another_zone(any_patient):
    any_patient.set_up()
    any_patient.insert(hours=2)
    evidence = any_patient.find("time-zone")["evidence"]
    assert evidence.endswith("by hours: 2")


@pytest.mark.parametrize("hours", [-1, -2])
def test_a_quiet_hour_is_no_other_zone(patient, hours):
    patient.set_up()
    patient.insert("orders", "messenger_messages", hours=hours)
    patient.insert("failed", "messenger_messages", hours=hours)
    patient.insert(hours=hours)
    found = {finding["check"] for finding in patient.findings()}
    assert found == {"no-relay", "no-consumer", "failed-messages"}


def test_rows_of_php(any_patient):
    any_patient.set_up()
    any_patient.insert(headers="[]", body="O:1")
    assert "1 rows" in any_patient.find("foreign-rows")["evidence"]


def test_nothing_relays(any_patient):
    any_patient.set_up()
    any_patient.insert()
    found = any_patient.find("no-relay", "--age=30")
    assert found["cure"] == "skirnir relay outbox"
    assert "1 messages are due, the oldest for" in found["evidence"]


def test_a_relay_that_gets_nowhere(any_patient):
    any_patient.set_up()
    any_patient.use(orders="amqp://127.0.0.1:1/%2f")
    any_patient.insert()
    any_patient.start("relay", "outbox", "--wait")
    shops.until(lambda: {finding["check"] for finding in
                         any_patient.findings("--age=30")} ==
                {"broker", "messages-late"},
                lambda: str(any_patient.findings("--age=30")))


def test_nothing_consumes(any_patient):
    any_patient.set_up()
    any_patient.insert("orders", "messenger_messages")
    found = any_patient.find("no-consumer", "--age=30")
    assert found["cure"] == "skirnir consume orders"


def test_failed_messages(patient):
    patient.set_up()
    patient.check("publish", "order.unknown", "--body", "{}")
    patient.check("relay", "outbox", "--stop-when-empty")
    patient.check("consume", "orders", "--stop-when-empty")
    assert patient.find("failed-messages")["evidence"] == "there are 1"


def test_a_queue_that_nothing_reads(any_patient):
    any_patient.set_up()
    any_patient.insert("outbux")
    found = any_patient.find("queue-unread")
    assert "outbux" in found["evidence"]
    assert found["place"] == "messenger_outbox"


def test_partitions_that_are_blocked(any_patient):
    any_patient.set_up(scheme="ordered-doctrine")
    any_patient.use(scheme="ordered-doctrine", replace=[
        ("relay_to: orders", "relay_to: orders\n        on_failure: block")])
    any_patient.check("publish", "order.placed", "--body", "{}",
                      "--partition-key=order-1")
    any_patient.database.ask(
        "UPDATE messenger_outbox SET headers = 'not json'")
    any_patient.check("relay", "outbox", "--time-limit=1")
    # However long it has been, and whatever stands behind it.
    any_patient.check("publish", "order.placed", "--body", "{}",
                      "--partition-key=order-1")
    found = any_patient.find("partition-blocked", "--age=1")
    assert found["evidence"] == "1 partitions are blocked"


def test_a_broker_that_is_away(patient):
    patient.set_up()
    patient.use(orders="amqp://127.0.0.1:1/%2f")
    assert "127.0.0.1:1" in patient.find("broker")["evidence"]


def test_rabbitmq(patient, vhost):
    """Healthy, and with messages that nothing consumes."""
    server = worlds.need("SKR_RABBITMQ_URL").rsplit("/", 1)[0]
    url = f"{server}/{vhost}"
    patient.set_up()
    patient.use(orders=url)
    assert patient.findings() == []
    patient.check("setup-amqp")
    assert patient.findings() == []
    patient.insert()
    patient.check("relay", "outbox", "--stop-when-empty")
    try:
        shops.until(lambda: [finding["cure"] for finding in
                             patient.findings("--age=1")] ==
                    ["skirnir consume orders"],
                    lambda: str(patient.findings("--age=1")))
    finally:
        with amqp_client.Client(url) as client:
            client.delete_queue("messages")
            client.delete_exchange("messages")


def test_two_that_share_a_table_of_records(patient):
    patient.use(replace=[("    failed: '", """\
    one: {dsn: 'amqp://127.0.0.1:1/%2f', options: {exchange: {name: e}, \
queues: {one: {}}}}
    two: {dsn: 'amqp://127.0.0.1:1/%2f', options: {exchange: {name: e}, \
queues: {two: {}}}}
    failed: '""")])
    checks = {finding["check"] for finding in patient.findings()}
    assert "configuration" in checks


@pytest.fixture
def clerk(tmp_path):
    """A user of MariaDB who may not see the transactions of others."""
    made = Patient(tmp_path, databases.MariaDB())
    made.set_up(scheme="ordered-doctrine")
    name = made.database.name[-12:]
    made.database.ask(f"CREATE USER {name}@'%' IDENTIFIED BY 'secret'; GRANT "
                      f"ALL ON {made.database.name}.* TO {name}@'%'")
    url = made.database.url
    scheme, _, rest = url.partition("://")
    made.use(scheme="ordered-doctrine",
             url=f"{scheme}://{name}:secret@{rest.partition('@')[2]}")
    yield made
    made.database.ask(f"DROP USER {name}@'%'")
    made.leave()


def test_transactions_that_cannot_be_seen(clerk):
    found = clerk.find("transactions-hidden")
    assert "PROCESS" in found["evidence"] + found["cure"]
    # Without an order nothing depends on them.
    path = clerk.folder / "skirnir.yaml"
    path.write_text(path.read_text().replace("ordered-doctrine", "doctrine"))
    assert clerk.findings() == []


def test_it_changes_nothing(patient):
    patient.use()
    patient.run("doctor")
    assert not patient.database.path.exists()
    result = subprocess.run(
        patient.command("doctor", "more"), capture_output=True, text=True,
        check=False, cwd=patient.folder, timeout=shops.PATIENCE_S)
    assert result.returncode == 2
