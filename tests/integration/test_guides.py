"""The guides in docs/ do what they say: their commands and their snippets, run
as they stand there."""
import json
import os
import pathlib
import re
import shutil
import subprocess

import pytest

import databases
import kafka_outbox_world
import places
import shop as shops

DOCS = shops.ROOT / "docs"
BODY = {"orderId": 1, "cents": 4200}
# Where compilers keep what they made, so that it is made once.
CACHE = pathlib.Path(os.environ.get("XDG_CACHE_HOME",
                                    pathlib.Path.home() / ".cache"))


def blocks(page, language):
    """Each with the heading that it stands under."""
    found, heading = [], ""
    text = (DOCS / page).read_text()
    for match in re.finditer(r"^## ([^\n]+)$|^```(\w*)\n(.*?)^```$", text,
                             re.M | re.S):
        if match.group(1):
            heading = match.group(1)
        elif match.group(2) == language:
            found.append((heading, match.group(3)))
    return found


def block(page, language, heading):
    [text] = [text for under, text in blocks(page, language)
              if under.startswith(heading)]
    return text


def run_page(folder, page, *replaced):
    """What every command of the page printed, one after the other, in a shell
    that stops at the first that fails. replaced: pairs, of what stands in the
    page and what takes its place, such as the address of a server."""
    (folder / "bin").mkdir()
    (folder / "bin" / "skirnir").symlink_to(shops.PROGRAM)
    script = "".join(text for _, text in blocks(page, "sh"))
    for old, new in replaced:
        assert old in script
        script = script.replace(old, new)
    result = subprocess.run(
        ["bash", "-eu", "-o", "pipefail"], input=script, text=True,
        capture_output=True, cwd=folder, timeout=shops.PATIENCE_S,
        env={"PATH": f"{folder / 'bin'}:{os.environ['PATH']}",
             "HOME": str(folder)})
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


def test_getting_started_gets_started(tmp_path):
    said = run_page(tmp_path, "getting-started.md")
    assert "1|4200\n" in said
    assert re.search(r"^outbox +1 +1 ", said, re.M)
    assert re.search(r"order\.forgotten", said.rpartition("1|4200")[2])


def test_the_first_program_of_the_readme(tmp_path):
    """As it stands there, but for where it is installed."""
    page = (shops.ROOT / "README.md").read_text()
    program, = re.findall(r"```c\n(.*?)```", page, re.S)
    example = (shops.ROOT / "examples" / "publish.c").read_text()
    code = example[example.index("#include"):]
    assert program[program.index("#include"):] == code
    part = page.split("To try it")[1].split("The last line prints")[0]
    script = "".join(re.findall(r"^    (.*\n)", part, re.M))
    install, copy, folder, *rest = script.splitlines(keepends=True)
    assert install.partition("#")[0].strip() == "sudo make install"
    assert folder == "cd /tmp/first\n"
    script = copy.replace("/tmp/first", str(tmp_path / "first")) + \
        f"cd {tmp_path / 'first'}\n" + "".join(rest)
    build = pathlib.Path(shops.PROGRAM).resolve().parents[2]
    result = subprocess.run(
        ["bash", "-eu", "-o", "pipefail"], input=script, text=True,
        capture_output=True, cwd=shops.ROOT, timeout=shops.PATIENCE_S,
        env={"PATH": f"{pathlib.Path(shops.PROGRAM).parent}:"
                     f"{os.environ['PATH']}",
             "PKG_CONFIG_PATH": str(build / "meson-uninstalled"),
             "CPATH": str(shops.ROOT / "include"),
             "LD_LIBRARY_PATH": str(build), "HOME": str(tmp_path)})
    assert result.returncode == 0, result.stdout + result.stderr
    sent, billed = result.stdout.splitlines()[-2:]
    assert '"customer":"Ida"' in sent
    assert billed == "1|1|Ida|99"


@pytest.fixture
def published(place):
    """A place with an application's table; what follows is looked at when the
    snippet has run."""
    place.ask("CREATE TABLE orders (id INTEGER PRIMARY KEY, cents INTEGER)")
    return place


def expect_published(place):
    """The order, and its message, which a relay takes for one."""
    assert place.ask("SELECT id, cents FROM orders") == "1\t4200"
    place.check("relay", "outbox", "--stop-when-empty")
    [(body, headers)] = place.rows("orders")
    assert json.loads(body) == BODY
    assert headers["type"] == "order.placed"
    assert "X-Message-Id" in headers


SQL_HEADINGS = {"sqlite": "SQLite", "mysql": "MariaDB and MySQL",
                "postgresql": "PostgreSQL"}


def test_publishing_by_sql(published):
    """By the shell that comes with the database."""
    dialect = published.database.dialect
    text = block("publishing.md", "sql", SQL_HEADINGS[dialect])
    if dialect == "sqlite":
        subprocess.run(["sqlite3", "-bail", published.database.path],
                       input=text, text=True, check=True)
    else:
        published.ask(text)
    expect_published(published)


@pytest.fixture(params=databases.KINDS)
def topic_table(request, tmp_path):
    """A database with a table kafka_outbox that `kafka-relay migrate` made."""
    database = databases.open_database(request.param, tmp_path)
    world = kafka_outbox_world.World(tmp_path, database, "127.0.0.1:1")
    world.check("kafka-relay", "migrate")
    world.ask("CREATE TABLE orders (id INTEGER PRIMARY KEY, cents INTEGER)")
    yield world
    world.close()
    database.drop()


def test_the_insert_of_a_record(topic_table):
    """The columns that are public are enough."""
    kind = topic_table.database.dialect
    text = block("schema.md", "sql", f"kafka_outbox: INSERT on "
                 f"{SQL_HEADINGS[kind]}")
    if kind == "sqlite":
        subprocess.run(["sqlite3", "-bail", topic_table.database.path],
                       input=text, text=True, check=True)
    else:
        topic_table.ask(text)
    key = topic_table.key()
    assert topic_table.ask("SELECT id, cents FROM orders") == "1\t4200"
    row = topic_table.ask(f"SELECT topic, payload_json, payload_headers, {key}, "
                          "push_attempts, errored FROM kafka_outbox").split("\t")
    topic, payload, headers, *rest = row
    assert json.loads(payload) == BODY
    assert json.loads(headers) == {"type": "order.placed"}
    assert [topic, *rest] == ["orders", "order-1", "0", "0"]
    assert topic_table.open_rows() == 1


def test_columns_that_are_public_are_all_there(tmp_path):
    database = databases.open_database("sqlite", tmp_path)
    world = kafka_outbox_world.World(tmp_path, database, "127.0.0.1:1")
    world.check("kafka-relay", "migrate")
    page = (DOCS / "schema.md").read_text()
    part = page.split("\n## kafka_outbox\n")[1].split("\n## ")[0]
    table, _, rest = part.partition("All others")
    public = set(re.findall(r"^\| `(\w+)`", table, re.M))
    others = set(re.findall(r"`(\w+)`", rest.split(". ")[0]))
    columns = database.ask("SELECT name FROM pragma_table_info('kafka_outbox')")
    assert public | others == set(columns.split()) and not public & others
    world.close()


def test_indexes_for_those_who_go_back(place):
    """They can be made beside ours, and setup and relay take them for good."""
    place.set_config(replace=[("'doctrine://default?table_name=messenger_outbox",
                               "'ordered-doctrine://default?table_name="
                               "messenger_outbox")])
    place.check("setup")
    statements = block("schema.md", "sql", "Indexes of others")
    for statement in filter(str.strip, statements.split(";")):
        place.ask(statement)
    assert "ran: " not in place.check("setup")
    place.write("{}", '{"type":"order.placed"}', "outbox", "messenger_outbox")
    place.check("relay", "outbox", "--stop-when-empty")
    assert len(place.rows("orders")) == 1
    drop = "DROP INDEX idx_partition_id ON messenger_outbox" \
        if place.database.dialect == "mysql" \
        else "DROP INDEX messenger_outbox_idx_partition_id"
    assert f"`{drop}`" in " ".join((DOCS / "schema.md").read_text().split())
    place.ask(drop)
    assert "ran: " in place.check("setup")


@pytest.fixture(params=databases.KINDS)
def handling(request, tmp_path):
    """An empty place in each kind of database."""
    database = databases.open_database(request.param, tmp_path)
    opened = places.Place(tmp_path, database)
    yield opened
    opened.leave()


def test_handling_by_sql(handling):
    place = handling
    heading = SQL_HEADINGS[place.database.dialect]
    text = place.config_path.read_text()
    place.write_config(text[:text.index("handlers:")] +
                       block("sql-handlers.md", "yaml", heading))
    place.set_up()
    for statement in block("sql-handlers.md", "sql", heading).split(";\n"):
        if statement.strip():
            place.ask(statement)
    checked = place.run("config", "check")
    assert checked.returncode == 0, checked.stdout
    assert "warning" not in checked.stdout, checked.stdout
    ids = [place.check("publish", "order.placed", "--body",
                       json.dumps({"orderId": number, "cents": 4200})).strip()
           for number in (1, 2)]
    place.check("relay", "outbox", "--stop-when-empty")
    place.check("consume", "orders", "--stop-when-empty")
    assert place.ask("SELECT order_id, cents FROM invoice ORDER BY order_id") \
        == "1\t4200\n2\t4200"
    assert place.ask("SELECT message_id FROM invoice ORDER BY order_id") == \
        "\n".join(ids)
    as_hex = {"postgresql": "encode(id, 'hex')"}.get(
        place.database.dialect, "LOWER(HEX(id))")
    assert place.ask(f"SELECT {as_hex} FROM invoice ORDER BY order_id") == \
        "\n".join(ids).replace("-", "")
    assert place.ask("SELECT name, cents FROM sold") == "order.placed\t8400"


@pytest.mark.parametrize("heading", ["SQL", "C"])
def test_a_handler_of_the_page_about_all(tmp_path, heading):
    """Those in other languages are of the READMEs, see below."""
    place = places.Place(tmp_path, databases.PostgreSQL())
    try:
        text = place.config_path.read_text()
        place.write_config(text[:text.index("handlers:")] +
                           block("handlers.md", "yaml", heading))
        if heading == "C":
            (tmp_path / "bill.c").write_text(block("handlers.md", "c", "C"))
            flags = subprocess.run(["pkg-config", "--cflags", "libpq"],
                                   check=True, capture_output=True, text=True)
            subprocess.run(
                ["cc", "-shared", "-fPIC", "-Wall", "-Wextra", "-Werror", "-o",
                 "bill.so", "bill.c", "-I", shops.ROOT / "include",
                 *flags.stdout.split()], cwd=tmp_path, check=True)
        place.set_up()
        place.ask("CREATE TABLE invoices (order_id INTEGER, cents INTEGER)")
        place.check("publish", "order.placed", "--body", json.dumps(BODY))
        place.check("relay", "outbox", "--stop-when-empty")
        place.check("consume", "orders", "--stop-when-empty")
        assert place.ask("SELECT order_id, cents FROM invoices") == "1\t4200"
    finally:
        place.leave()


@pytest.mark.parametrize("page, number", [("publishing.md", 0),
                                          ("handlers.md", 1)])
@pytest.mark.parametrize("language", ["php", "python", "node", "go"])
def test_a_program_of_a_page_is_that_of_the_readme(page, number, language):
    """Which test_clients.py runs, on real servers."""
    readme = (shops.ROOT / "clients" / language / "README.md").read_text()
    program = re.findall(r"^```\w+\n.*?^```$", readme, re.M | re.S)[number]
    assert program in (DOCS / page).read_text()


def test_a_statement_of_another_database_is_blamed_for_what_it_is(handling):
    """Not for being more than one."""
    place = handling
    text = place.config_path.read_text()
    place.write_config(
        text[:text.index("handlers:")] + "handlers: {order.placed: {sql: "
        "'INSERT INTO effects (body) VALUES (:body @@> ->> !)'}}\n")
    place.set_up()
    result = place.run("config", "check")
    assert result.returncode == 3
    assert "exactly one" not in result.stdout
    assert "syntax" in result.stdout or "unrecognized" in result.stdout


@pytest.fixture
def sqlite_shop(tmp_path):
    opened = places.Place(tmp_path, databases.SQLite(tmp_path))
    opened.set_up()
    # The snippets name it so.
    (tmp_path / "shop.db").symlink_to(opened.database.path)
    opened.ask("CREATE TABLE orders (id INTEGER PRIMARY KEY, cents INTEGER)")
    yield opened
    opened.leave()


@pytest.mark.parametrize("language,program", [("python", "python3"),
                                              ("php", "php")])
def test_publishing_by_a_script(sqlite_shop, language, program):
    if shutil.which(program) is None:
        pytest.skip(f"{program} is not installed")
    text = block("publishing.md", language, "P")
    path = sqlite_shop.folder / f"publish.{language}"
    path.write_text(text)
    subprocess.run([program, path], check=True, cwd=sqlite_shop.folder,
                   timeout=shops.PATIENCE_S)
    expect_published(sqlite_shop)


def test_a_script_that_fails_has_published_nothing(sqlite_shop):
    text = block("publishing.md", "python", "Python")
    path = sqlite_shop.folder / "publish.py"
    path.write_text(text.replace('connection.execute("COMMIT")',
                                 'raise SystemExit(3)'))
    result = subprocess.run(["python3", path], cwd=sqlite_shop.folder)
    assert result.returncode == 3
    assert sqlite_shop.number("SELECT COUNT(*) FROM orders") == 0
    assert sqlite_shop.number("SELECT COUNT(*) FROM messenger_outbox") == 0


def build_go(folder):
    """The program, or None where its driver cannot be had."""
    (folder / "main.go").write_text(block("publishing.md", "go", "Go"))
    environment = {**os.environ, "GOFLAGS": "-mod=mod -buildvcs=false",
                   "GOCACHE": str(CACHE / "go-build")}
    for command in (["mod", "init", "publish"], ["mod", "tidy"]):
        result = subprocess.run(["go", *command], cwd=folder, env=environment,
                                capture_output=True, text=True, timeout=120)
        if result.returncode != 0:
            pytest.skip(f"go {' '.join(command)}: {result.stderr}")
    subprocess.run(["go", "build", "-o", "publish"], cwd=folder, check=True,
                   env=environment, timeout=240)
    return folder / "publish"


def test_publishing_by_go(tmp_path):
    if shutil.which("go") is None:
        pytest.skip("go is not installed")
    database = databases.PostgreSQL()
    (tmp_path / "go").mkdir()
    place = places.Place(tmp_path, database)
    try:
        place.set_up()
        place.ask("CREATE TABLE orders (id INTEGER PRIMARY KEY, "
                  "cents INTEGER)")
        program = build_go(tmp_path / "go")
        subprocess.run([program], check=True, timeout=shops.PATIENCE_S, env={
            **os.environ, "DATABASE_URL": go_url(database)})
        expect_published(place)
    finally:
        place.leave()


def go_url(database):
    """lib/pq knows fewer parameters than libpq."""
    base = database.url.replace("pgsql://", "postgres://").partition("?")[0]
    return base + "?sslmode=disable"


# What the configurations in guides leave out.
DATABASES = "databases: {default: 'sqlite:///shop.db'}\n"
OUTBOX = """\
    outbox:
        dsn: 'doctrine://default?table_name=messenger_outbox'
        relay_to: amqp
"""
BROKERS = """\
    amqp: 'amqp://localhost/%2f'
    audit: 'amqp://localhost/%2f'
"""


def complete(text):
    """As a file that can be loaded; one of Symfony's is whole."""
    if "framework:" in text:
        return text
    if "dsn:" not in text:
        text = text.replace("    outbox:\n", OUTBOX)
    others = BROKERS if "    outbox:\n" in text else BROKERS + OUTBOX
    before, _, after = text.partition("transports:\n")
    return f"{DATABASES}{before}transports:\n{others}{after}"


@pytest.mark.parametrize("page", [
    "amqp-routing.md", "delivery-guarantees.md", "migrating-from-symfony.md",
    "ordered-delivery.md"])
def test_configurations_in_guides_load(shop, page):
    texts = [text for _, text in blocks(page, "yaml")]
    assert texts
    for text in texts:
        shop.write_config(complete(text))
        checked = shop.run("config", "check",
                           environment={"DATABASE_URL": "sqlite:///shop.db"})
        assert checked.returncode == 0, checked.stdout
        # Symfony's own file lacks what it keeps in code, and nothing else.
        if "framework:" in text:
            assert "transports.outbox.relay_to is missing" in checked.stdout
            assert checked.stdout.endswith(", 1 warning\n")


def test_typed_messages_compile(tmp_path):
    """In an order in which C can read them: a type before it is used."""
    texts = [text for _, text in blocks("typed-messages.md", "c")]
    codecs = next(text for text in texts if "struct money {" in text)
    texts.remove(codecs)
    path = tmp_path / "typed.c"
    path.write_text("\n".join(["#include <skirnir/sqlite.h>",
                               "#include <skirnir/typed.h>",
                               "#include <string.h>", codecs, *texts]))
    subprocess.run(["cc", "-fsyntax-only", "-Wall", "-Wextra", "-Werror",
                    "-Wno-unused", f"-I{shops.ROOT / 'include'}", path],
                   check=True)


@pytest.mark.parametrize("page", sorted(
    path.name for path in DOCS.glob("*.md")))
def test_files_of_the_source_that_a_page_names_are_there(page):
    text = (DOCS / page).read_text()
    named = set(re.findall(
        r"(?<![\w/])((?:examples|packaging|docs|tools|bench)/[\w./-]*\w)", text))
    missing = [path for path in named if not (shops.ROOT / path).exists()
               and path != "bench/results"]
    assert not missing


def test_the_manual_of_the_library_names_every_header():
    page = (DOCS / "skirnir.3.md").read_text()
    named = set(re.findall(r"#include <skirnir/(\w+\.h)>", page))
    assert named == {path.name for path in
                     (shops.ROOT / "include/skirnir").glob("*.h")}


def anchors(path):
    """The names by which the headings of a page can be linked to."""
    text = re.sub(r"```.*?```", "", path.read_text(), flags=re.S)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-")
            for heading in re.findall(r"^#+ (.+)$", text, re.M)}


def test_every_guide_is_linked_and_every_link_leads_somewhere():
    pages = {path.name for path in DOCS.glob("*.md")}
    linked = set()
    for path in [*DOCS.glob("*.md"), *shops.ROOT.glob("*.md")]:
        for target, _, anchor in re.findall(r"\]\(([^)#]*)(#([^)]+))?\)",
                                            path.read_text()):
            if "://" in target:
                continue
            leads_to = (path.parent / target) if target else path
            assert leads_to.exists(), f"{path.name}: {target}"
            assert not anchor or anchor in anchors(leads_to), \
                f"{path.name}: {target}#{anchor}"
            if path.name == "README.md":
                linked.add(leads_to.name)
    assert pages - {"README.md"} <= linked
