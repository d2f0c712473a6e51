"""Logs for programs: an object a line."""
import json

import shop as shops


def events(text):
    return [json.loads(line) for line in text.splitlines()]


def test_every_line_is_an_object_with_time_level_and_event(ready_shop):
    shop = ready_shop
    shop.place_orders(3)
    shops.write_row(shop.open("shop"), "{}", "{broken\n\"quoted\"")
    result = shop.relay_all("--log-format=json", "-vv")
    said = events(result.stderr)
    assert {"relay.active", "relay.failed", "relay.stopped"} <= \
        {event["event"] for event in said}
    for event in said:
        assert list(event)[:3] == ["time", "level", "event"]
        assert event["time"].endswith("Z") and len(event["time"]) == 24
        assert event["level"] in ("error", "warning", "info", "debug")
    stopped, = [event for event in said if event["event"] == "relay.stopped"]
    assert stopped["published"] == 3 and stopped["name"] == "outbox"
    result = shop.consume_all("-vv", "--log-format", "json")
    assert sum(event["event"] == "consumer.handled"
               for event in events(result.stderr)) == 3


def test_the_text_of_before_is_asked_for_by_its_name(ready_shop):
    result = ready_shop.relay_all("--log-format=text")
    assert " info relay.active name=outbox" in result.stderr


def test_another_format_is_wrong_usage(ready_shop):
    for value in ("xml", "", "text json", "tex"):
        result = ready_shop.run("relay", "outbox", f"--log-format={value}")
        assert result.returncode == 2
        assert "--log-format=" in result.stderr
