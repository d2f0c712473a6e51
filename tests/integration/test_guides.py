"""The guides in docs/ do what they say: their commands and their snippets, run
as they stand there."""
import json
import os
import pathlib
import re
import shutil
import sqlite3
import subprocess

import pytest

import places
import shop as shops
import worlds

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


def run_page(folder, page, replaced=("", "")):
    """What every command of the page printed, one after the other, in a shell
    that stops at the first that fails."""
    (folder / "bin").mkdir()
    (folder / "bin" / "skirnir").symlink_to(shops.PROGRAM)
    script = "".join(text for _, text in blocks(page, "sh"))
    result = subprocess.run(
        ["bash", "-eu", "-o", "pipefail"], input=script.replace(*replaced),
        text=True, capture_output=True, cwd=folder, timeout=shops.PATIENCE_S,
        env={"PATH": f"{folder / 'bin'}:{os.environ['PATH']}",
             "HOME": str(folder)})
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


def test_getting_started_gets_started(tmp_path):
    said = run_page(tmp_path, "getting-started.md")
    assert "1|4200\n" in said
    assert re.search(r"^outbox +1 +1 ", said, re.M)
    assert re.search(r"order\.forgotten", said.rpartition("1|4200")[2])


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


SQL_HEADINGS = {"sqlite": "SQLite", "mariadb": "MariaDB and MySQL",
                "postgresql": "PostgreSQL"}


def test_publishing_by_sql(published):
    """By the shell that comes with the database."""
    text = block("publishing.md", "sql", SQL_HEADINGS[published.database.kind])
    if published.database.kind == "sqlite":
        subprocess.run(["sqlite3", "-bail", published.database.path],
                       input=text, text=True, check=True)
    else:
        published.ask(text)
    expect_published(published)


@pytest.fixture
def sqlite_shop(tmp_path):
    opened = places.Place(tmp_path, places.SQLite(tmp_path))
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
    database = worlds.new_database(worlds.PostgreSQL)
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
    "amqp-routing.md", "migrating-from-symfony.md", "ordered-delivery.md"])
def test_configurations_in_guides_load(shop, page):
    texts = [text for _, text in blocks(page, "yaml")]
    assert texts
    for text in texts:
        shop.write_config(complete(text))
        shop.check("config", "check",
                   environment={"DATABASE_URL": "sqlite:///shop.db"})


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


def test_every_guide_is_linked_and_every_link_leads_somewhere():
    pages = {path.name for path in DOCS.glob("*.md")}
    linked = set()
    for path in [*DOCS.glob("*.md"), shops.ROOT / "README.md"]:
        for target in re.findall(r"\]\(([^)#]+)[^)]*\)", path.read_text()):
            if "://" in target:
                continue
            assert (path.parent / target).exists(), f"{path.name}: {target}"
            if path.name == "README.md":
                linked.add(pathlib.Path(target).name)
    assert pages - {"README.md"} <= linked
