"""The quick start with PostgreSQL and RabbitMQ, and the configuration and the
rights of the guide to RabbitMQ, as they stand in docs/."""
import os
import re
import subprocess
import uuid

import pytest

import amqp_client
import databases
import shop as shops
import test_guides
import worlds

QUICK_START = "quick-start-postgresql-rabbitmq.md"


@pytest.fixture
def names():
    """Databases and a user, by the statements of the quick start under names of
    their own, and what takes the place of each name."""
    server = databases.PostgreSQL()
    suffix = uuid.uuid4().hex[:8]
    made = {name: f"{name}_{suffix}" for name in ("quickstart", "shop", "billing")}
    text = test_guides.block(QUICK_START, "sql", "1.")
    for old, new in made.items():
        text = re.sub(rf"\b{old}\b", new, text)
    for statement in filter(str.strip, text.split(";\n")):
        server.ask(statement, server.maintenance)
    made["server"] = server.url.partition("@")[2].partition("/")[0]
    yield made
    for name in ("shop", "billing"):
        server.ask(f"DROP DATABASE {made[name]} WITH (FORCE)", server.maintenance)
    server.ask(f"DROP ROLE {made['quickstart']}", server.maintenance)
    server.drop()


def url(names, database):
    return (f"postgresql://{names['quickstart']}:secret@{names['server']}"
            f"/{names[database]}")


@pytest.fixture
def own_vhost():
    with worlds.new_vhost() as name:
        yield name


def broker(vhost, user="guest:guest"):
    server = worlds.need("SKR_RABBITMQ_URL").rpartition("@")[2].partition("/")[0]
    return f"amqp://{user}@{server}/{vhost}"


def test_the_quick_start_does_what_it_says(tmp_path, names, own_vhost):
    said = test_guides.run_page(
        tmp_path, QUICK_START,
        ("postgresql://quickstart:secret@localhost:5432/shop",
         url(names, "shop")),
        ("postgresql://quickstart:secret@localhost:5432/billing",
         url(names, "billing")),
        ("amqp://guest:guest@localhost:5672/%2f", broker(own_vhost)))
    assert "[OK] binding shop -> billing (order.#)\n" in said
    assert re.search(r"^outbox +1 +1 ", said, re.M)
    invoices, _, rest = said.partition("(1 row)")
    assert re.search(r"^ +1 \| +4200$", invoices, re.M)
    assert re.search(r"count *\n-+\n +1\n", rest)
    assert re.search(r"order\.lost +0 ", rest)
    assert "9900" not in said


class Deployment:
    """What the guide deploys: its configuration, on servers of the tests."""

    def __init__(self, folder, names, vhost):
        self.folder, self.vhost = folder, vhost
        self.databases = {"SHOP_DATABASE": url(names, "shop"),
                          "BILLING_DATABASE": url(names, "billing")}
        text = test_guides.block("rabbitmq.md", "yaml", "A complete")
        (folder / "skirnir.yaml").write_text(text)
        self.users = []

    def run(self, *arguments, user="guest:guest"):
        result = subprocess.run(
            [shops.PROGRAM, *arguments], cwd=self.folder, text=True,
            capture_output=True, stdin=subprocess.DEVNULL,
            timeout=shops.PATIENCE_S,
            env={**os.environ, **self.databases,
                 "RABBITMQ": broker(self.vhost, user)})
        assert result.returncode == 0, result.stdout + result.stderr
        return result.stdout + result.stderr

    def ask(self, database, sql):
        return subprocess.run(
            ["psql", "-X", "-q", "-A", "-t", self.databases[database], "-c", sql],
            check=True, capture_output=True, text=True).stdout.strip()

    def user_of(self, row):
        """One with the rights that a row of the guide's table has."""
        page = (test_guides.DOCS / "rabbitmq.md").read_text()
        [line] = [line for line in page.splitlines()
                  if line.startswith(f"| {row} ")]
        cells = [cell.strip() for cell in
                 re.split(r"(?<!\\)\|", line)[2:5]]
        rights = [cell.strip("`").replace("\\|", "|") for cell in cells]
        rights = [rights[0] if right == "the same" else right
                  for right in rights]
        name = f"user-{uuid.uuid4().hex[:8]}"
        worlds.control("add_user", name, "secret")
        self.users.append(name)
        worlds.control("set_permissions", "-p", self.vhost, name, *rights)
        return f"{name}:secret"


@pytest.fixture
def deployment(tmp_path, names, own_vhost):
    made = Deployment(tmp_path, names, own_vhost)
    yield made
    for user in made.users:
        worlds.control("delete_user", user)


def test_the_configuration_of_the_guide_works_with_its_rights(deployment):
    deployment.ask("BILLING_DATABASE",
                   "CREATE TABLE invoice (order_id BIGINT, cents BIGINT)")
    assert "ok, 4 transports" in deployment.run("config", "check")
    deployment.run("setup")
    deployment.run("setup-deduplication", "--force")
    said = deployment.run("setup-amqp",
                          user=deployment.user_of("`skirnir setup-amqp`"))
    assert "[ERROR]" not in said
    assert "[OK] binding shop -> billing (order.#)\n" in said
    assert "[OK] binding dropped -> dropped\n" in said
    for name in ("order.placed", "order.paid", "order.placed"):
        deployment.run("publish", name, "--body", '{"orderId":1,"cents":4200}')
    said = deployment.run("relay", "outbox", "--stop-when-empty",
                          user=deployment.user_of("the relay"))
    assert "published=3 retried=0 failed=0" in said
    said = deployment.run("consume", "billing_queue", "--consumers=2",
                          "--stop-when-empty",
                          user=deployment.user_of("a consumer with "
                                                  "`retry_via: row` (default)"))
    assert "amqp.not_declared" not in said
    assert "consumer.trouble" not in said
    assert deployment.ask("BILLING_DATABASE", "SELECT * FROM invoice") == \
        "1|4200\n1|4200"
    with amqp_client.Client(broker(deployment.vhost)) as client:
        assert {queue: client.count(queue) for queue in
                ("billing", "shipping", "dropped")} == \
            {"billing": 0, "shipping": 1, "dropped": 0}
    assert "no failed messages" in deployment.run("failed", "show").lower()
