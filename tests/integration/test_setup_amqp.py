"""setup-amqp: declares the topology on RabbitMQ, or says what it would do."""
import json
import os
import pathlib
import subprocess
import tempfile

import pytest

import shop as shops
from worlds import control, new_vhost

CONFIG = """\
databases:
    default: 'sqlite:///%kernel.project_dir%/shop.db'
transports:
    amqp: '%env(MESSENGER_AMQP_DSN)%'
message_broker_amqp:
    topology:
        exchanges:
            commerce: {type: topic}
            dead: {type: fanout, durable: false}
        queues:
            orders:
                arguments:
                    x-message-ttl: '60000'
                    x-max-priority: 5
                    x-dead-letter-exchange: dead
                    x-single-active-consumer: true
            plain:
        bindings:
            - {exchange: commerce, queue: orders, binding_key: 'order.#'}
            - {exchange: dead, queue: plain}
"""
OK_LINES = """\
[OK] exchange commerce (topic)
[OK] exchange dead (fanout)
[OK] queue orders
[OK] queue plain
[OK] binding commerce -> orders (order.#)
[OK] binding dead -> plain
"""


@pytest.fixture
def vhost():
    """Of each test its own."""
    with new_vhost() as name:
        yield name


def run(folder, *arguments, config=CONFIG, dsn=None):
    (folder / "skirnir.yaml").write_text(config)
    dsn = dsn or os.environ.get("SKR_RABBITMQ_URL", "amqp://localhost:1/")
    return subprocess.run(
        [shops.PROGRAM, *arguments], cwd=folder, capture_output=True,
        text=True, stdin=subprocess.DEVNULL, timeout=shops.PATIENCE_S,
        env={**os.environ, "MESSENGER_AMQP_DSN": dsn})


def test_what_is_declared_is_there_and_may_be_repeated(tmp_path, vhost):
    for name in ("setup-amqp", "message-broker:setup-amqp"):
        result = run(tmp_path, name, f"--vhost={vhost}")
        assert (result.returncode, result.stdout, result.stderr) == \
            (0, OK_LINES, "")
    queues = control("list_queues", "-p", vhost, "name", "arguments")
    assert '{"x-message-ttl",60000}' in queues
    assert '{"x-max-priority",5}' in queues
    assert '{"x-dead-letter-exchange","dead"}' in queues
    assert '{"x-single-active-consumer",true}' in queues
    exchanges = control("list_exchanges", "-p", vhost, "name", "type",
                        "durable")
    assert "commerce\ttopic\ttrue" in exchanges
    assert "dead\tfanout\tfalse" in exchanges
    bindings = control("list_bindings", "-p", vhost, "source_name",
                       "destination_name", "routing_key")
    assert "commerce\torders\torder.#" in bindings


def test_what_differs_is_named_and_left_alone(tmp_path, vhost):
    run(tmp_path, "setup-amqp", f"--vhost={vhost}")
    other = CONFIG.replace("type: topic", "type: direct") \
        .replace("60000", "70000") \
        .replace("queue: plain}", "queue: plain}\n"
                 "            - {exchange: missing, queue: plain}")
    result = run(tmp_path, "setup-amqp", f"--vhost={vhost}", config=other)
    assert result.returncode == 1
    lines = result.stdout.splitlines()
    assert [line.split()[0] for line in lines] == [
        "[ERROR]", "[OK]", "[ERROR]", "[OK]", "[OK]", "[OK]", "[ERROR]"]
    assert lines[0].startswith("[ERROR] exchange commerce (direct): ")
    assert "x-message-ttl" in lines[2]
    for line in (lines[0], lines[2]):
        assert "correct the configuration, or delete it" in line
    assert "no exchange 'missing'" in lines[6]
    assert "3 of 7 could not be declared" in result.stderr
    assert "commerce\ttopic" in control("list_exchanges", "-p", vhost)


def test_a_name_of_rabbitmqs_own_is_no_matter_of_rights(tmp_path, vhost):
    result = run(tmp_path, "setup-amqp", f"--vhost={vhost}",
                 config=CONFIG.replace("commerce", "amq.commerce"))
    assert result.returncode == 1
    line = next(line for line in result.stdout.splitlines()
                if line.startswith("[ERROR] exchange amq.commerce"))
    assert "choose another name" in line and "permission" not in line


def test_a_certificate_without_its_key_is_named(tmp_path):
    folder = os.environ["SKR_RABBITMQ_CERTIFICATES"]
    alone = f"cert={folder}/authority.pem"
    result = run(tmp_path, "setup-amqp",
                 dsn=f"{os.environ['SKR_RABBITMQ_TLS_URL']}"
                     f"?cacert={folder}/authority.pem&{alone}")
    assert result.returncode == 1
    assert f"{alone} in the DSN holds no key" in result.stderr
    assert "in key" in result.stderr


def test_the_dump_is_what_rabbitmq_imports(tmp_path, vhost):
    # The server's user reads it, and what is below pytest's own folder is
    # closed to others each time that a pytest begins.
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder, "definitions.json")
        result = run(tmp_path, "setup-amqp", "--dump", f"--output={path}",
                     f"--vhost={vhost}", dsn="amqp://localhost:1/")
        assert (result.returncode, result.stdout, result.stderr) == (0, "", "")
        path.chmod(0o644)
        path.parent.chmod(0o755)
        control("import_definitions", str(path))
    # As if it had been declared: nothing differs.
    assert run(tmp_path, "setup-amqp",
               f"--vhost={vhost}").stdout == OK_LINES


def test_the_dump_needs_no_server(tmp_path):
    result = run(tmp_path, "setup-amqp", "--dump", dsn="amqp://localhost:1/")
    assert result.returncode == 0
    definitions = json.loads(result.stdout)
    assert list(definitions) == ["exchanges", "queues", "bindings"]
    assert definitions["queues"][0] == {
        "name": "orders", "vhost": "/", "durable": True, "auto_delete": False,
        "arguments": {"x-message-ttl": 60000, "x-max-priority": 5,
                      "x-dead-letter-exchange": "dead",
                      "x-single-active-consumer": True}}
    assert definitions["bindings"][0] == {
        "source": "commerce", "vhost": "/", "destination": "orders",
        "destination_type": "queue", "routing_key": "order.#",
        "arguments": {}}


def test_a_dry_run_asks_no_server(tmp_path):
    result = run(tmp_path, "setup-amqp", "--dry-run",
                 dsn="amqp://localhost:1/")
    assert result.returncode == 0
    assert result.stdout.splitlines() == [
        line.removeprefix("[OK] ") + " would be declared"
        for line in OK_LINES.splitlines()]


@pytest.mark.parametrize("arguments, code, says", [
    (["--output=x"], 2, "--output goes with --dump"),
    (["--dump", "--dry-run"], 2, "exclude each other"),
    (["--dsn=amqp://guest:secret@127.0.0.1:1/"], 1, "Connection refused"),
    (["--dsn=kafka://127.0.0.1/"], 1, "--dsn: amqp:// or amqps:// is needed"),
    (["--dsn=localhost"], 1, "--dsn: amqp:// or amqps:// is needed"),
    (["--dump", "--output=/nowhere/x"], 1, "cannot write /nowhere/x"),
])
def test_what_cannot_be_done_is_said(tmp_path, arguments, code, says):
    result = run(tmp_path, "setup-amqp", *arguments)
    assert result.returncode == code
    assert says in result.stderr
    assert "secret" not in result.stderr + result.stdout


@pytest.mark.parametrize("old, new, says", [
    ("type: topic", "type: tpoic",
     "exchanges.commerce.type: no exchange has the type 'tpoic'"),
    ("'60000'", "soon",
     "orders.arguments.x-message-ttl: a whole number is needed"),
    ("x-max-priority: 5", "x-max-priority: [5]",
     "orders.arguments.x-max-priority: a text, a number or a"),
])
def test_a_mistake_in_the_topology_is_named(tmp_path, old, new, says):
    result = run(tmp_path, "setup-amqp", "--dry-run",
                 config=CONFIG.replace(old, new))
    assert result.returncode == 3
    assert says in result.stderr
    assert "skirnir.yaml:" in result.stderr


OWN = """\
databases:
    default: 'sqlite:///%kernel.project_dir%/shop.db'
transports:
    amqp:
        dsn: '%env(MESSENGER_AMQP_DSN)%'
        options:
            exchange: {name: commerce, type: topic}
            queues:
                orders: {binding_keys: ['order.#', 'user.#']}
                plain: {arguments: {x-max-priority: 5}}
    elsewhere:
        dsn: 'amqp://localhost:1/shop'
        options: {queues: {orders: ~}}
    bare: 'amqp://localhost:1/nothing'
"""


def test_transports_bring_what_is_their_own(tmp_path, vhost):
    config = OWN[:OWN.index("    elsewhere")]
    for _ in range(2):
        result = run(tmp_path, "setup-amqp", f"--vhost={vhost}", config=config)
        assert (result.returncode, result.stdout, result.stderr) == (0, """\
[OK] exchange commerce (topic)
[OK] queue orders
[OK] queue plain
[OK] binding commerce -> orders (order.#)
[OK] binding commerce -> orders (user.#)
[OK] binding commerce -> plain
""", "")
    assert '{"x-max-priority",5}' in control("list_queues", "-p", vhost,
                                             "name", "arguments")


def test_each_is_declared_where_its_dsn_leads(tmp_path):
    result = run(tmp_path, "setup-amqp", "--dump", config=OWN,
                 dsn="amqp://localhost:1/one")
    definitions = json.loads(result.stdout)
    assert [(queue["name"], queue["vhost"])
            for queue in definitions["queues"]] == [
        ("orders", "one"), ("plain", "one"), ("orders", "shop"),
        ("messages", "nothing")]
    together = run(tmp_path, "setup-amqp", "--dump", "--dsn=amqp://h/two",
                   config=OWN)
    assert [(queue["name"], queue["vhost"])
            for queue in json.loads(together.stdout)["queues"]] == [
        ("orders", "two"), ("plain", "two"), ("messages", "two")]


def test_the_topology_says_what_a_queue_looks_like(tmp_path):
    """A transport that names it, too, need not repeat its arguments."""
    config = CONFIG.replace("'%env(MESSENGER_AMQP_DSN)%'", "\n"
                            "        dsn: '%env(MESSENGER_AMQP_DSN)%'\n"
                            "        options: {queues: {orders: ~, own: ~}}")
    result = run(tmp_path, "setup-amqp", "--dump", config=config,
                 dsn="amqp://localhost:1/")
    queues = json.loads(result.stdout)["queues"]
    assert [queue["name"] for queue in queues] == ["orders", "plain", "own"]
    assert queues[0]["arguments"]["x-max-priority"] == 5


def test_a_transport_that_names_nothing_has_symfonys_defaults(tmp_path):
    config = CONFIG[:CONFIG.index("message_broker_amqp")]
    result = run(tmp_path, "setup-amqp", "--dry-run", config=config,
                 dsn="amqp://localhost:1/")
    assert result.stdout == """\
exchange messages (fanout) would be declared
queue messages would be declared
binding messages -> messages would be declared
"""
    # Not beside exchanges that the file lists: there names decide.
    result = run(tmp_path, "setup-amqp", "--dry-run",
                 dsn="amqp://localhost:1/")
    assert "messages" not in result.stdout


def test_nothing_to_declare_is_said(tmp_path):
    result = run(tmp_path, "setup-amqp",
                 config=CONFIG[:CONFIG.index("transports")])
    assert result.returncode == 1
    assert "nothing to declare" in result.stderr
