"""The clients of clients/: their own tests, in the runner of their language,
and workers of theirs that are killed again and again."""
import json
import os
import pathlib
import random
import re
import shlex
import shutil
import subprocess
import sys
import uuid

import pytest

import databases
import languages
import shop as shops
from languages import CLIENTS, LANGUAGES

KILLS = 200 if shops.LONG else 20
MOST_AT_ONCE = 30  # orders: more than are handled before a kill
KINDS = ["sqlite", "postgresql"]
# To a client the two are one: the second is told of under the first one's name.
SERVERS = ["mariadb", "mysql"]
CONFIG = """\
databases:
    default: '{url}'
failure_transport: failed
transports:
    outbox: 'ordered-doctrine://default?table_name=messenger_outbox&queue_name=outbox'
    other: 'doctrine://default?table_name=Other_Outbox&queue_name=x'
    orders:
        dsn: 'queue://default?queue_name=orders'
        retry_strategy: {{max_retries: 1000, delay: 1}}
    failed: 'doctrine://default?queue_name=failed'
handlers:
    order.placed: {{command: {command}}}
"""
# All texts: what comes back is what was written.
KAFKA_OUTBOX = """CREATE TABLE kafka_outbox (topic VARCHAR(255),
payload_json TEXT, payload_headers TEXT, {key} VARCHAR(255))"""


# The database of a README's first program, what runs it, and its file's ending.
FIRST = {
    "python": ("sqlite", [sys.executable], "py"),
    "php": ("sqlite", ["php"], "php"),
    "node": ("postgresql", ["node"], "js"),
    "go": ("postgresql", ["go", "run"], "go"),
}
# Keeps each tool to what is here, and to the folder that it is called in.
OFFLINE = {
    "PIP_NO_INDEX": "1", "PIP_NO_BUILD_ISOLATION": "0", "PIP_TARGET": "site",
    "PIP_DISABLE_PIP_VERSION_CHECK": "1", "PIP_ROOT_USER_ACTION": "ignore",
    # A copy, with the files that package.json names, in place of a link.
    "npm_config_offline": "true", "npm_config_install_links": "true",
    "npm_config_audit": "false", "npm_config_update_notifier": "false",
    "COMPOSER_HOME": "composer", "COMPOSER_ALLOW_SUPERUSER": "1",
    "COMPOSER_DISABLE_NETWORK": "1", "COMPOSER_NO_INTERACTION": "1",
    "GOPROXY": "off", "GOSUMDB": "off", "GOFLAGS": "-mod=mod",
}


def commands(language):
    try:
        return LANGUAGES[language]()
    except languages.Missing as missing:
        pytest.skip(str(missing))


def client_kind(kind):
    return SERVERS[0] if kind in SERVERS else kind


class Place:
    """A database of each kind with all the tables; the configuration is for
    one of them, of which the consumer's part is used."""

    def __init__(self, folder):
        self.folder = folder
        self.databases = {}
        self.started = []

    def open(self, kind, command=("true",)):
        database = databases.open_database(kind, self.folder)
        self.databases[kind] = database
        self.write_config(kind, command)
        for words in (["setup"], ["setup-deduplication", "--force"]):
            subprocess.run([shops.PROGRAM, *words], cwd=self.folder,
                           check=True, capture_output=True)
        database.ask("CREATE TABLE effects (order_id VARCHAR(40) NOT NULL)")
        key = "`key`" if kind in SERVERS else "key"
        database.ask(KAFKA_OUTBOX.format(key=key))
        return database

    def write_config(self, kind, command):
        (self.folder / "skirnir.yaml").write_text(CONFIG.format(
            url=self.databases[kind].url,
            command=json.dumps([str(word) for word in command])))

    def environment(self):
        urls = {client_kind(kind): database.url
                for kind, database in self.databases.items()}
        if "sqlite" in self.databases:
            urls["sqlite"] = str(self.databases["sqlite"].path)
        return {**os.environ, **languages.worker_environment(urls)}

    def start_consumer(self):
        started = shops.Program(
            [shops.PROGRAM, "consume", "orders"],
            self.folder / f"log-{len(self.started)}", self.environment(),
            cwd=self.folder)
        self.started.append(started)
        return started

    def close(self):
        for started in self.started:
            if started.is_running():
                started.kill()
        for database in self.databases.values():
            database.drop()


@pytest.fixture
def place(tmp_path):
    made = Place(tmp_path)
    yield made
    made.close()


@pytest.mark.parametrize("server", SERVERS)
@pytest.mark.parametrize("language", LANGUAGES)
def test_a_client_passes_its_tests(place, language, server):
    for kind in (*KINDS, server):
        place.open(kind)
    folder = CLIENTS / language
    command, _ = commands(language)
    result = subprocess.run(
        command, cwd=folder, env=place.environment(), text=True,
        stdin=subprocess.DEVNULL, capture_output=True, timeout=300)
    said = result.stdout + result.stderr
    assert result.returncode == 0, said


def read_readme(language):
    return (CLIENTS / language / "README.md").read_text()


def run_first_program(place, language, command, environment, replaced=("", "")):
    """The first of the README, in the folder of the place, on a database that
    is opened here, and what it leaves there."""
    kind, _, ending = FIRST[language]
    database = place.open(kind)
    database.ask("CREATE TABLE orders (id INTEGER, cents INTEGER)")
    if kind == "sqlite":
        (place.folder / "shop.db").symlink_to(database.path)
    program = re.search(r"```\w+\n(.*?)```", read_readme(language), re.S).group(1)
    file = place.folder / f"first.{ending}"
    file.write_text(program.replace(*replaced))
    url = place.environment().get(f"SKR_CLIENT_{kind.upper()}", "")
    parameters = "?sslmode=disable" if language == "go" else ""
    subprocess.run([*command, file], cwd=place.folder, check=True,
                   env={**environment, "DATABASE_URL": url + parameters})
    assert json.loads(database.ask("SELECT body FROM messenger_outbox")) == {
        "orderId": 1, "cents": 4200}
    headers = json.loads(database.ask("SELECT headers FROM messenger_outbox"))
    assert headers["type"] == "order.placed"


@pytest.mark.parametrize("language", LANGUAGES)
def test_the_first_program_publishes(place, language):
    commands(language)
    _, command, _ = FIRST[language]
    if language == "go":  # where the module of its tests is
        command = ["env", "-C", CLIENTS / "go/tests", *command]
    (place.folder / "node_modules").mkdir()
    (place.folder / "node_modules/skirnir").symlink_to(CLIENTS / "node")
    run_first_program(
        place, language, command, place.environment(),
        ("vendor/autoload.php", str(CLIENTS / "php/tests/autoload.php")))


def find_pip():
    """That of a Python which can build a package without fetching anything."""
    for python in (sys.executable, "/usr/bin/python3"):
        if subprocess.run([python, "-c", "import setuptools, wheel, pip"],
                          capture_output=True).returncode == 0:
            return [python, "-m", "pip"]
    pytest.skip("pip, setuptools and wheel are not installed")


def prepare_python(_):
    return {"pip": find_pip()}


def prepare_php(folder):
    if shutil.which("composer") is None:
        pytest.skip("composer is not installed")
    # A project, and no package from elsewhere.
    (folder / "composer.json").write_text("{}")
    (folder / "composer").mkdir()
    (folder / "composer/config.json").write_text(
        '{"repositories": {"packagist.org": false}}')
    return {}


def prepare_node(_):
    commands("node")
    return {}


def prepare_go(folder):
    """A module with the driver of the program, as the client has none."""
    commands("go")
    driver, = re.findall(r"github.com/lib/pq v.*",
                         (CLIENTS / "go/tests/go.mod").read_text())
    (folder / "go.mod").write_text(f"module shop\n\nrequire {driver}\n")
    return {}


# Each makes an application's folder ready for the tool of its language, and
# says what stands for a program's name.
PREPARE = {"python": prepare_python, "php": prepare_php, "node": prepare_node,
           "go": prepare_go}


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_client_installs_by_the_tool_of_its_language(place, language):
    programs = PREPARE[language](place.folder)
    # A copy: some tools build inside it.
    shutil.copytree(CLIENTS / language, place.folder / "clients" / language)
    environment = {**os.environ, **OFFLINE, "PYTHONPATH": "site"}
    introduction = read_readme(language).partition("\n## ")[0]
    commands = [shlex.split(line) for line in introduction.splitlines()
                if line.startswith("    ")]
    assert commands
    for name, *parameters in commands:
        result = subprocess.run(
            [*programs.get(name, [name]), *parameters], cwd=place.folder,
            env=environment, text=True, timeout=120, capture_output=True,
            stdin=subprocess.DEVNULL)
        assert result.returncode == 0, result.stdout + result.stderr
    _, command, _ = FIRST[language]
    run_first_program(place, language, command, environment)


@pytest.mark.parametrize("language, command, old, new", [
    ("python", [], "postgresql://shop@localhost/shop", "{url}"),
    ("php", ["php"], "pgsql:host=localhost;dbname=shop",
     "pgsql:host=127.0.0.1;port={port};user=postgres;dbname={name}"),
    ("node", ["node"], "", ""), ("go", ["env"], "", "")])
def test_the_handler_of_a_readme_handles(place, language, command, old, new):
    commands(language)
    file = place.folder / "handler"
    command = command or [languages.find_python()]
    database = place.open("postgresql", [*command, file])
    database.ask("CREATE TABLE invoices (order_id INTEGER, cents INTEGER)")
    (place.folder / "node_modules").mkdir()
    (place.folder / "node_modules/skirnir").symlink_to(CLIENTS / "node")
    url = place.environment()["SKR_CLIENT_POSTGRESQL"]
    _, program = re.findall(r"```\w+\n(.*?)```", read_readme(language), re.S)
    file.write_text(program.replace(old, new.format(
        url=url, port=database.setting("PORT"), name=database.name)).replace(
            "'shop'", "'postgres'").replace(
            "vendor/autoload.php", str(CLIENTS / "php/tests/autoload.php")))
    if language == "go":
        url += "?sslmode=disable"
        file.rename(file.with_suffix(".go"))
        subprocess.run(["go", "build", "-o", file, file.with_suffix(".go")],
                       cwd=CLIENTS / "go/tests", check=True)
    database.ask(
        "INSERT INTO messenger_messages (body, headers, queue_name, "
        "created_at, available_at) VALUES ('{\"orderId\":1,\"cents\":4200}', "
        f"'{{\"type\":\"order.placed\",\"X-Message-Id\":\"{uuid.uuid4()}\"}}', "
        f"'orders', {database.now}, {database.now})")
    result = subprocess.run(
        [shops.PROGRAM, "consume", "orders", "--stop-when-empty"],
        cwd=place.folder, env={**place.environment(), "DATABASE_URL": url},
        capture_output=True, text=True, timeout=shops.PATIENCE_S)
    assert result.returncode == 0, result.stderr
    assert "consumer.no_record" not in result.stderr
    assert database.ask("SELECT order_id, cents FROM invoices") == "1\t4200"
    assert database.ask(
        "SELECT COUNT(*) FROM message_broker_deduplication") == "1"


def children(pid):
    found = []
    for task in pathlib.Path(f"/proc/{pid}/task").glob("*/children"):
        found += [int(child) for child in task.read_text().split()]
    return found


def kill(consumer, victim):
    """The consumer, or its worker, if it has one just now."""
    if victim == "consumer":
        consumer.kill()
        return
    try:
        for child in children(consumer.pid):
            os.kill(child, 9)
    except (FileNotFoundError, ProcessLookupError):
        pass


def revive(place, database, consumer):
    """A consumer that runs: that one, or another without a wait for the end of
    its lease."""
    if consumer is not None and consumer.is_running():
        return consumer
    database.ask("UPDATE messenger_messages SET delivered_at = NULL")
    return place.start_consumer()


def place_orders(database, first):
    rows = []
    for number in range(first, first + MOST_AT_ONCE):
        headers = json.dumps({"type": "order.placed",
                              "X-Message-Id": str(uuid.uuid4())})
        body = json.dumps({"orderId": f"order-{number}"})
        rows.append(f"('{body}', '{headers}', 'orders', {database.now}, "
                    f"{database.now})")
    database.ask("INSERT INTO messenger_messages (body, headers, queue_name, "
                 f"created_at, available_at) VALUES {', '.join(rows)}")


@pytest.mark.alike
@pytest.mark.parametrize("language, kind", [
    ("python", "postgresql"), ("python", "mysql"), ("php", "mariadb"),
    ("php", "mysql"), ("node", "postgresql"), ("go", "sqlite")])
def test_a_worker_that_is_killed_has_its_effects_once(place, language, kind):
    chance = random.Random(f"{language} {kind}")
    _, command = commands(language)
    database = place.open(kind, [*command, client_kind(kind)])

    def effects():
        return int(database.ask("SELECT COUNT(*) FROM effects"))
    # A byte for each call: it tells at once, and in the middle of one.
    progress = place.folder / "progress"
    progress.touch()
    consumer = None
    count = KILLS * MOST_AT_ONCE
    for first in range(0, count, MOST_AT_ONCE):
        place_orders(database, first)
        consumer = revive(place, database, consumer)
        goal = progress.stat().st_size + chance.randrange(1, 20)
        shops.until(lambda: progress.stat().st_size >= goal,
                    lambda: f"{goal} calls; {consumer.log()[-3000:]}",
                    pause_s=0.0005)
        kill(consumer, chance.choice(["worker", "consumer"]))
    consumer = revive(place, database, consumer)
    shops.until(lambda: database.ask(
        "SELECT COUNT(*) FROM messenger_messages "
        "WHERE queue_name = 'orders'") == "0",
        lambda: f"an empty queue; {consumer.log()[-3000:]}")
    assert consumer.stop() == 0
    assert effects() == count
    assert database.ask("SELECT COUNT(DISTINCT order_id) FROM effects") == \
        str(count)
    assert database.ask(
        "SELECT COUNT(*) FROM message_broker_deduplication") == str(count)
    assert database.ask("SELECT COUNT(*) FROM messenger_messages") == "0"
    logs = "".join(started.log() for started in place.started)
    assert "consumer.no_record" not in logs
    print(f"{progress.stat().st_size} calls for {count} messages")
