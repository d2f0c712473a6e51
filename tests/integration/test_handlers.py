"""Handlers in shared objects, as processes and in SQL, as the configuration
names them."""
import os
import pathlib
import shutil
import signal
import subprocess
import sys

import pytest

import shop as shops

EXAMPLES = shops.ROOT / "examples" / "worker"

LIBRARY = """\
#include <skirnir/skirnir.h>
#include <stdio.h>

%s

SKR_API skr_handler_fn note;

enum skr_verdict
note(const struct skr_delivery *delivery, struct skr_tx tx, void *user,
     struct skr_error *reason)
{
    FILE *file = fopen("noted", "a");
    (void)user;
    (void)reason;
    fprintf(file, "%%d %%d %%s %%s\\n", tx.ops != NULL, delivery->attempt,
            delivery->message.name, delivery->message.traceparent);
    fclose(file);
    return SKR_ACCEPT;
}
"""


def compile_library(folder, version="SKR_HANDLER_LIBRARY;"):
    (folder / "shop.c").write_text(LIBRARY % version)
    subprocess.run(["cc", "-shared", "-fPIC", "-I", shops.ROOT / "include",
                    "shop.c", "-o", "shop.so"], cwd=folder, check=True)


def set_handler(shop, handler):
    text = shop.config_path.read_text()
    shop.write_config(text[:text.index("handlers:")] + "handlers:\n"
                      f"    order.placed: {handler}\n")


def refused(shop, *words):
    """Neither checked nor run, and both say why."""
    check = shop.run("config", "check")
    assert check.returncode == 3, check.stdout
    consume = shop.consume_all()
    assert consume.returncode in (1, 3)
    for word in ("handlers.order.placed", *words):
        assert word in check.stdout
        assert word in consume.stderr
    return check.stdout


@pytest.mark.parametrize("transaction, has_tx", [("true", 1), ("false", 0)])
def test_a_library_handles_messages(ready_shop, transaction, has_tx):
    shop = ready_shop
    compile_library(shop.folder)
    set_handler(shop, "{library: ./shop.so, function: note, "
                      f"transaction: {transaction}}}")
    shop.check("config", "check")
    parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    shop.check("publish", "order.placed", "--body", "{}",
               "--traceparent", parent)
    assert shop.relay_all().returncode == 0
    assert shop.consume_all().returncode == 0
    noted = (shop.folder / "noted").read_text()
    assert noted == f"{has_tx} 1 order.placed {parent}\n"
    assert shop.count("billing", "message_broker_deduplication") == 1


def test_a_library_that_is_not_there_is_refused(ready_shop):
    set_handler(ready_shop, "{library: ./none.so, function: note}")
    refused(ready_shop, "none.so")


def test_a_library_that_is_none_is_refused(ready_shop):
    (ready_shop.folder / "shop.so").write_text("hello")
    set_handler(ready_shop, "{library: ./shop.so, function: note}")
    refused(ready_shop, "cannot be loaded")


def test_a_library_without_that_function_is_refused(ready_shop):
    compile_library(ready_shop.folder)
    set_handler(ready_shop, "{library: ./shop.so, function: not_there}")
    refused(ready_shop, "has no function not_there")


def test_a_library_of_another_version_is_refused(ready_shop):
    compile_library(ready_shop.folder,
                    "const uint32_t skr_handler_abi = 9999;")
    set_handler(ready_shop, "{library: ./shop.so, function: note}")
    refused(ready_shop, "version 9999", "compile it again")


LOUD = """
#include <fcntl.h>
__attribute__((constructor)) static void
shout(void)
{
    open("loaded", O_CREAT | O_WRONLY, 0600);
}
"""


def test_checking_runs_no_code_of_a_library(ready_shop):
    shop = ready_shop
    compile_library(shop.folder, "SKR_HANDLER_LIBRARY;" + LOUD)
    for name in ("./shop.so", str(shop.folder / "shop.so"), "shop.so"):
        set_handler(shop, f"{{library: {name}, function: note}}")
        shop.check("config", "check", environment={"LD_LIBRARY_PATH": "."})
        assert not (shop.folder / "loaded").exists(), name
    set_handler(shop, "{library: ./shop.so, function: note}")
    shop.check("publish", "order.placed", "--body", "{}")
    assert shop.relay_all().returncode == 0
    assert shop.consume_all().returncode == 0
    assert (shop.folder / "loaded").exists()


def test_a_broken_library_is_refused_without_a_crash(ready_shop):
    shop = ready_shop
    compile_library(shop.folder)
    file = shop.folder / "shop.so"
    whole = file.read_bytes()
    set_handler(shop, "{library: ./shop.so, function: note}")
    # Cut off; and the offsets and counts of its head out of all bounds.
    broken = [whole[:size] for size in (
        0, 3, 10, 63, 64, 100, 1000, len(whole) // 2, len(whole) - 700)]
    for at, size in ((32, 8), (40, 8), (58, 2), (60, 2)):
        broken.append(whole[:at] + b"\xff" * size + whole[at + size:])
    for number, content in enumerate(broken):
        file.write_bytes(content)
        check = shop.run("config", "check")
        assert check.returncode == 3, f"{number}: {check.stdout}"
        assert "handlers.order.placed.library" in check.stdout


def test_a_library_without_a_version_is_refused(ready_shop):
    compile_library(ready_shop.folder, "")
    set_handler(ready_shop, "{library: ./shop.so, function: note}")
    refused(ready_shop, "SKR_HANDLER_LIBRARY")


@pytest.mark.parametrize("command, word", [
    ("[no-such-program]", "no-such-program"),
    ("./none", "No such file"),
    ("php worker.php", "as a list")])
def test_a_command_that_cannot_be_run_is_refused(ready_shop, command, word):
    set_handler(ready_shop, f"{{command: {command}}}")
    refused(ready_shop, word)


@pytest.mark.parametrize("first_line, word", [
    ("#!/usr/bin/pyhton3\n", "its first line names /usr/bin/pyhton3: No such"),
    (f"#!{sys.executable}\r\n", "ends with CR LF"),
    ("#!/usr/bin/env python3\r\n", "ends with CR LF"),
])
def test_a_script_without_its_interpreter_is_refused(ready_shop, first_line,
                                                     word):
    script = ready_shop.folder / "worker"
    script.write_bytes(first_line.encode())
    script.chmod(0o755)
    set_handler(ready_shop, "{command: [./worker]}")
    refused(ready_shop, word)


@pytest.mark.parametrize("script, said", [
    ("import time\ntime.sleep(600)", r"no line within 1 s \(timeout\)"),
    ("print('starting up', flush=True)\ninput()",
     r"its first line is \\\"starting up\\\""),
    ("import sys\nsys.exit(3)", r"it ended with exit code 3"),
])
def test_what_a_command_says_in_place_of_ready_is_told(ready_shop, script,
                                                       said):
    shop = ready_shop
    (shop.folder / "worker.py").write_text(script)
    set_handler(shop, f"{{command: ['{sys.executable}', worker.py], "
                      "timeout: 1}")
    shop.check("publish", "order.placed", "--body", "{}")
    assert shop.relay_all().returncode == 0
    consumer = shop.start_consumer()
    consumer.wait_for(r"consumer\.trouble .*" + said +
                      r".*skirnir-handler\(7\)")
    assert consumer.stop() == 0


def test_a_stop_before_a_command_is_ready_is_no_trouble(ready_shop):
    shop = ready_shop
    (shop.folder / "worker.py").write_text(
        "import time\nopen('begun', 'w').close()\ntime.sleep(600)")
    set_handler(shop, f"{{command: ['{sys.executable}', worker.py]}}")
    shop.check("publish", "order.placed", "--body", "{}")
    assert shop.relay_all().returncode == 0
    consumer = shop.start_consumer()
    shops.until(lambda: (shop.folder / "begun").exists(), consumer.log)
    assert consumer.stop() == 0
    assert not consumer.events("consumer.trouble")


def test_sql_that_is_none_is_found_by_asking_the_database(ready_shop):
    set_handler(ready_shop, "{sql: [DELETE FROM effects, "
                            "INSERT INTO effects VALUE :id]}")
    check = ready_shop.run("config", "check")
    assert check.returncode == 3
    assert "handlers.order.placed.sql" in check.stdout
    assert "syntax error" in check.stdout
    assert "1 mistake" in check.stdout


def test_sql_on_a_table_to_come_is_a_warning(ready_shop):
    set_handler(ready_shop, "{sql: DELETE FROM later}")
    told = ready_shop.check("config", "check")
    assert "warning" in told and "later" in told


def test_a_database_that_is_not_made_yet_is_not_missed(shop):
    assert "warning" not in shop.check("config", "check")
    assert not shop.path("billing").exists()


def test_a_database_that_cannot_be_asked_is_a_warning(shop):
    shop.path("billing").mkdir()
    told = shop.check("config", "check")
    assert "was not asked" in told


@pytest.mark.parametrize("program, name", [
    (sys.executable, "worker.py"), ("php", "worker.php")])
def test_the_workers_of_the_examples(ready_shop, program, name):
    if shutil.which(program) is None:
        pytest.skip("php is not installed")
    shop = ready_shop
    shutil.copy(EXAMPLES / name, shop.folder)
    set_handler(shop, f"{{command: ['{program}', {name}]}}")
    connection = shop.open("shop")
    for body in ('{"customer":"Ida"}', '{"customer":"Ole"}', "no json"):
        shops.write_row(connection, body)
    assert shop.relay_all().returncode == 0
    assert shop.consume_all().returncode == 0
    letters = sorted(path.read_text()
                     for path in (shop.folder / "letters").iterdir())
    assert letters == ["Dear Ida, thank you for your order.\n",
                       "Dear Ole, thank you for your order.\n"]
    assert [body for body, _, _ in shop.failed()] == ["no json"]


SLOW = """\
import json, os, sys, time
print('{"ready":true}', flush=True)
for line in sys.stdin:
    with open("begun", "a") as file:
        file.write(f"{os.getpid()}\\n")
    while not os.path.exists("go"):
        time.sleep(0.01)
    print(json.dumps({"delivery": json.loads(line)["delivery"],
                      "verdict": "accept"}), flush=True)
"""


def start_slow(shop):
    """A consumer whose process has the first of three messages in hand."""
    (shop.folder / "worker.py").write_text(SLOW)
    set_handler(shop, f"{{command: ['{sys.executable}', worker.py]}}")
    shop.place_orders(3)
    assert shop.relay_all().returncode == 0
    consumer = shop.start_consumer()
    begun = shop.folder / "begun"
    shops.until(lambda: begun.exists() and begun.read_text(),
                lambda: "a message in hand; " + consumer.log())
    return consumer, int(begun.read_text())


# Records each message beside its effect, and dies before its first answer.
RECORDING = """\
import json, os, sqlite3, sys
print('{"ready":true}', flush=True)
for line in sys.stdin:
    message = json.loads(line)
    with open("calls", "a") as file:
        file.write(".")
    db = sqlite3.connect("billing.db", timeout=60)
    fresh = db.execute(
        "INSERT OR IGNORE INTO TABLE_NAME (message_id, message_name, "
        "processed_at) VALUES (?, ?, datetime('now'))",
        (bytes.fromhex(message["id"].replace("-", "")), message["name"])
        ).rowcount
    if fresh:
        db.execute("INSERT INTO effects (order_id) VALUES (1)")
    db.commit()
    if fresh and DIES:
        os._exit(3)
    print(json.dumps({"delivery": message["delivery"], "verdict": "accept"}),
          flush=True)
"""


def set_recording(shop, deduplicates, table, dies):
    shop.open("billing").execute(
        "CREATE TABLE mine (message_id BLOB PRIMARY KEY, message_name, "
        "processed_at)")
    (shop.folder / "worker.py").write_text(RECORDING.replace(
        "TABLE_NAME", table).replace("DIES", str(dies)))
    set_handler(shop, f"{{command: ['{sys.executable}', worker.py], "
                      f"deduplicates: {deduplicates}}}")
    shop.check("publish", "order.placed", "--body", "{}")
    assert shop.relay_all().returncode == 0


def test_a_configuration_says_that_a_command_records(ready_shop):
    shop = ready_shop
    set_recording(shop, "true", "message_broker_deduplication", dies=True)
    result = shop.consume_all()
    assert result.returncode == 0
    assert "consumer.record_found" in result.stderr
    assert (shop.folder / "calls").read_text() == "."
    assert shop.count("billing", "effects") == 1
    assert shop.count("queue", "messenger_messages") == 0
    assert shop.failed() == []


def test_a_configuration_says_that_a_command_has_records_of_its_own(ready_shop):
    """Nothing is looked for: the message comes again, and does no harm."""
    shop = ready_shop
    set_recording(shop, "own", "mine", dies=True)
    consumer = shop.start_consumer()
    shop.wait_until_consumed()
    assert consumer.stop() == 0
    assert consumer.events("consumer.retry")
    assert not consumer.events("consumer.record_found")
    assert (shop.folder / "calls").read_text() == ".."
    assert shop.count("billing", "effects") == 1
    assert shop.count("billing", "message_broker_deduplication") == 1
    assert shop.failed() == []


def test_what_a_killed_consumer_left_handled_is_a_duplicate_to_the_next(
        ready_shop):
    """Of a command that records, as of any handler: nothing tells whether the
    first has counted it."""
    shop = ready_shop
    set_recording(shop, "true", "message_broker_deduplication", dies=False)
    shop.hold_at("consumer.ran_outside", "consume", "orders").kill()
    assert shop.count("billing", "effects") == 1
    shop.open("queue").execute(
        "UPDATE messenger_messages SET delivered_at = NULL")
    result = shop.consume_all("-vv")
    assert result.returncode == 0
    assert "consumer.duplicate" in result.stderr
    assert "handled=0 duplicates=1" in result.stderr
    assert (shop.folder / "calls").read_text() == "."
    assert shop.count("billing", "effects") == 1
    assert shop.count("queue", "messenger_messages") == 0


def is_gone(pid):
    status = pathlib.Path(f"/proc/{pid}/stat")
    try:
        return status.read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


def test_a_stop_waits_for_the_message_in_hand(ready_shop):
    consumer, pid = start_slow(ready_shop)
    consumer.process.send_signal(signal.SIGTERM)
    (ready_shop.folder / "go").touch()
    assert consumer.end() == 0
    assert is_gone(pid)
    handled = ready_shop.count("billing", "message_broker_deduplication")
    waiting = ready_shop.count("queue", "messenger_messages")
    assert handled >= 1 and handled + waiting == 3


def test_a_process_does_not_outlive_its_consumer(ready_shop):
    consumer, pid = start_slow(ready_shop)
    consumer.kill()
    shops.until(lambda: is_gone(pid), "the end of the process")


def test_a_process_has_none_of_our_connections(ready_shop):
    consumer, pid = start_slow(ready_shop)
    files = {os.readlink(path) for path in
             pathlib.Path(f"/proc/{pid}/fd").iterdir() if path.is_symlink()}
    assert not [name for name in files if ".db" in name or "socket" in name]
    (ready_shop.folder / "go").touch()
    ready_shop.wait_until_consumed()
    assert consumer.stop() == 0


def test_a_known_type_without_a_handler_is_refused_at_start(ready_shop):
    text = ready_shop.config_path.read_text()
    ready_shop.write_config(text.replace(
        "        database: billing\n",
        "        database: billing\n        message_types:\n"
        "            order.lost: 'App\\OrderLost'\n"))
    result = ready_shop.consume_all()
    assert result.returncode == 1
    assert "order.lost has no handler" in result.stderr
