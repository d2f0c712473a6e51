"""What was sent and kept, and what was handled, is removed when it is old."""
import time

import pytest

import places
import shop as shops

OLD = "'2020-01-01 10:00:00'"
NEW = "CURRENT_TIMESTAMP"
DONE = "'9999-12-31 23:59:59'"


def fill(place, old, new=2):
    """Sent messages, old and new, and some that are none of these."""
    def write(count, queue, times):
        for _ in range(count):
            place.write("{}", '{"type":"order.placed"}', queue,
                        "messenger_outbox", times)
    write(old, "outbox.sent", f"{OLD}, {OLD}, {OLD}")
    write(new, "outbox.sent", f"{OLD}, {OLD}, {NEW}")
    write(old, "outbox", f"{OLD}, {OLD}, {DONE}")
    write(new, "outbox", f"{NEW}, {NEW}, {DONE}")
    write(1, "outbox", f"{OLD}, {OLD}, NULL")
    write(1, "outbox", f"{OLD}, {OLD}, {OLD}")
    write(1, "other.sent", f"{OLD}, {OLD}, {OLD}")
    write(1, "Outbox.sent", f"{OLD}, {OLD}, {OLD}")
    return 2 * new + 4


def left(place):
    return place.number("SELECT COUNT(*) FROM messenger_outbox")


def test_only_what_is_old_and_sent_is_removed(place):
    kept = fill(place, old=3)
    text = "outbox: 6 rows older than 7 days"
    assert place.check("cleanup-outbox", "--dry-run") == \
        f"{text} would be removed.\n"
    assert left(place) == kept + 6
    assert place.check("messenger:cleanup-outbox", "outbox", "--days=7",
                       "--batch-size=1000") == f"{text} removed.\n"
    assert left(place) == kept
    assert place.check("cleanup-outbox") == \
        "outbox: 0 rows older than 7 days removed.\n"
    assert place.check("cleanup-outbox", "--days=36500") == \
        "outbox: 0 rows older than 36500 days removed.\n"
    assert left(place) == kept


@pytest.mark.alike
@pytest.mark.parametrize("size", [1, 7, 1000])
def test_steps_of_any_size_remove_all(place, size):
    kept = fill(place, old=20)
    assert "outbox: 40 rows" in place.check("cleanup-outbox",
                                            f"--batch-size={size}")
    assert left(place) == kept


def refuse_to_delete(place, row):
    if place.database.dialect == "sqlite":
        place.ask("CREATE TRIGGER stays BEFORE DELETE ON messenger_outbox "
                  f"WHEN OLD.id = {row} "
                  "BEGIN SELECT RAISE(ABORT, 'a note is about it'); END")
    else:
        place.ask("CREATE TABLE notes (row_id BIGINT, FOREIGN KEY (row_id) "
                  "REFERENCES messenger_outbox (id))")
        place.ask(f"INSERT INTO notes (row_id) VALUES ({row})")


def test_a_row_that_cannot_be_removed_is_told_and_keeps_no_other(place):
    kept = fill(place, old=3)
    refuse_to_delete(place, 2)
    result = place.run("cleanup-outbox")
    assert result.returncode == 1
    assert "outbox: 5 rows older than 7 days removed.\n" in result.stdout
    assert "messenger_outbox that cannot be removed, and stay: 1;" in \
        result.stderr
    assert left(place) == kept + 1


def test_transports_without_a_table_are_named(place):
    for name, text in (("billing", "billing has no table"),
                       ("failed", "failed has no table"),
                       ("nowhere", "nowhere")):
        result = place.run("cleanup-outbox", name)
        assert result.returncode == 1
        assert text in result.stderr


def remember(place, ages_days):
    """Handled messages, by their ages; sixteen bytes each."""
    blob = {"sqlite": "X'{}'", "mysql": "X'{}'",
            "postgresql": "decode('{}', 'hex')"}[place.database.dialect]
    for number, days in enumerate(ages_days):
        day = time.strftime("%Y-%m-%d %H:%M:%S",
                            time.gmtime(time.time() - days * 86400 - 60))
        value = blob.format(f"{number:032x}")
        place.ask("INSERT INTO message_broker_deduplication (message_id, "
                  f"message_name, processed_at) VALUES ({value}, 'a.b', "
                  f"'{day}')")


def remembered(place):
    return place.number("SELECT COUNT(*) FROM message_broker_deduplication")


def test_v17_v18_only_old_ids_are_forgotten_and_counted(place):
    remember(place, [0, 29, 30, 31, 400])
    text = "message_broker_deduplication: 3 rows older than 30 days"
    assert place.check("deduplication-cleanup", "--dry-run") == \
        f"{text} would be removed.\n"
    assert remembered(place) == 5
    assert place.check("message-broker:deduplication-cleanup", "--days=30",
                       "--batch-size=2") == f"{text} removed.\n"
    assert remembered(place) == 2
    assert "1 row older than 1 days removed." in \
        place.check("deduplication-cleanup", "--days=1")


def test_a_table_that_is_missing_is_named(shop):
    shop.check("setup")
    result = shop.run("deduplication-cleanup")
    assert result.returncode == 1
    assert "setup-deduplication --force" in result.stderr \
        or "skirnir setup" in result.stderr


@pytest.mark.parametrize("arguments", [
    ["--days=-1"], ["--days=x"], ["--batch-size=0"]], ids=" ".join)
@pytest.mark.parametrize("command", ["cleanup-outbox",
                                     "deduplication-cleanup"])
def test_wrong_numbers_are_wrong_usage(shop, command, arguments):
    assert shop.run(command, *arguments).returncode == 2


def test_a_relay_cleans_beside_its_work(place):
    kept = fill(place, old=3)
    remember(place, [0, 31])
    place.ask("DELETE FROM messenger_outbox WHERE queue_name = 'outbox' AND "
              f"(delivered_at IS NULL OR delivered_at = {OLD})")
    place.set_config(replace=[("databases:",
                               "cleanup: {interval: 1}\ndatabases:")])
    relays = [place.start("relay", "outbox") for _ in range(2)]
    shops.until(lambda: left(place) == kept - 2 and remembered(place) == 1,
                lambda: "old rows to go:\n" + place.logs())
    fill(place, old=2, new=0)
    shops.until(lambda: left(place) == kept,
                lambda: "old rows to go again:\n" + place.logs())
    for relay in relays:
        assert relay.stop() == 0
    logs = "".join(relay.log() for relay in relays)
    assert "cleaner.removed name=outbox rows=6" in logs
    assert "cleaner.trouble" not in logs


@pytest.mark.parametrize("days", [0, 30])
def test_a_relay_removes_what_failed_long_ago(place, days):
    """Only where that is asked for, and not what a worker has in hand."""
    for queue, times in [("failed", f"{OLD}, {OLD}, NULL"),
                         ("failed.skirnir", f"{OLD}, {OLD}, NULL"),
                         ("failed", f"{NEW}, {NEW}, NULL"),
                         ("failed", f"{OLD}, {OLD}, {NEW}"),
                         ("orders", f"{OLD}, {OLD}, NULL")]:
        place.write("{}", places.failed_headers("outbox", "order.old", "x"),
                    queue, times=times)
    remember(place, [31])
    place.set_config(replace=[(
        "databases:",
        f"cleanup: {{interval: 1, failed_days: {days}}}\ndatabases:")])
    relay = place.start("relay", "outbox")
    # What failed goes after what was handled.
    shops.until(lambda: remembered(place) == 0,
                lambda: "old ids to go:\n" + place.logs())
    if days > 0:
        relay.wait_for("cleaner.removed name=failed rows=2")
    remember(place, [31])
    shops.until(lambda: remembered(place) == 0,
                lambda: "old ids to go again:\n" + place.logs())
    assert relay.stop() == 0
    assert place.number("SELECT COUNT(*) FROM messenger_messages") == \
        (5 if days == 0 else 3)
    assert "cleaner.trouble" not in relay.log()


def test_a_consumer_removes_what_failed_long_ago(place):
    for times in (f"{OLD}, {OLD}, NULL", f"{NEW}, {NEW}, NULL"):
        place.write("{}", places.failed_headers("orders", "order.old", "x"),
                    "failed", times=times)
    place.set_config(replace=[(
        "databases:", "cleanup: {interval: 1, failed_days: 30}\ndatabases:")])
    consumer = place.start("consume", "orders")
    consumer.wait_for("cleaner.removed name=failed rows=1")
    assert consumer.stop() == 0
    assert len(place.rows("failed")) == 1
    assert "cleaner.trouble" not in consumer.log()


def test_of_two_that_clean_the_second_is_told(place):
    kept = fill(place, old=2)
    first = place.hold_at("cleaning.step", "cleanup-outbox", "--batch-size=1")
    result = place.run("cleanup-outbox")
    assert result.returncode == 1
    assert "someone else is cleaning this database" in result.stderr
    assert left(place) == kept + 3
    first.kill()
    place.check("cleanup-outbox")
    assert left(place) == kept


@pytest.mark.alike
@pytest.mark.parametrize("step", [1, 10, 60])
def test_cleaning_that_is_killed_is_done_again(place, step):
    kept = fill(place, old=30)
    place.hold_at("cleaning.step", "cleanup-outbox", "--batch-size=1",
                  visit=step).kill()
    assert left(place) == kept + 60 - step
    place.check("cleanup-outbox")
    assert left(place) == kept
