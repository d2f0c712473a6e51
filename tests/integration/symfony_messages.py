"""Messages as Symfony Messenger's AMQP transport and Freyr's bundle publish
them: properties, typed headers and bodies of the wire."""
import symfony_rows as symfony

DELAY_QUEUE = "delay_commerce_order.placed_1500_delay"


def stamp(key, value):
    return "S", f'[{{"{key}":"{value}"}}]'


def dead_letter(*stamps):
    """What RabbitMQ adds when a delay queue lets go of a message."""
    return {
        symfony.DELAY_STAMP: ("S", '[{"delay":1500}]'), **dict(stamps),
        "type": ("S", symfony.CLASS),
        "x-death": ("A", [("F", {
            "count": ("l", 1), "reason": ("S", "expired"),
            "queue": ("S", DELAY_QUEUE), "time": ("T", 1794711226),
            "exchange": ("S", "delays"),
            "routing-keys": ("A", [("S", DELAY_QUEUE)])})]),
        "x-first-death-exchange": ("S", "delays"),
        "x-first-death-queue": ("S", DELAY_QUEUE),
        "x-first-death-reason": ("S", "expired")}


RETRIED = ('[{"retryCount":1,"exceptionMessage":null,"flattenException":null,'
           '"redeliveredAt":"2026-11-15T02:53:45+00:00"}]')
PROPERTIES = {"content_type": "application/json", "timestamp": 1794711225}
# Id, headers, more properties, body.
MESSAGES = {
    "plain": (symfony.message_id(1), {
        "type": ("S", symfony.CLASS),
        symfony.ID_STAMP: stamp("messageId", symfony.message_id(1))},
        {}, symfony.BODIES["plain"]),
    "attributes": (symfony.message_id(2), {
        "x-custom": ("S", "abc"), "x-int": ("l", 7),
        "type": ("S", symfony.CLASS),
        symfony.ID_STAMP: stamp("messageId", symfony.message_id(2)),
        symfony.BUS_STAMP: stamp("busName", "messenger.bus.default")},
        {"message_id": symfony.message_id(2), "app_id": "shop"},
        symfony.BODIES["delay"]),
    "unicode": (symfony.message_id(3), {
        "type": ("S", symfony.CLASS),
        symfony.ID_STAMP: stamp("messageId", symfony.message_id(3))},
        {}, symfony.BODIES["bus"]),
    "delayed": (symfony.message_id(4), dead_letter(
        (symfony.ID_STAMP, stamp("messageId", symfony.message_id(4)))),
        {}, symfony.BODIES["delay"]),
    "retried": (symfony.message_id(5), dead_letter(
        (symfony.ID_STAMP, stamp("messageId", symfony.message_id(5))),
        (symfony.REDELIVERY_STAMP, ("S", RETRIED))),
        {}, symfony.BODIES["plain"]),
    "freyr": (symfony.message_id(6), {
        "type": ("S", symfony.NAME), "X-Message-Class": ("S", symfony.CLASS),
        "X-Message-Id": ("S", symfony.message_id(6))},
        {}, symfony.BODIES["plain"]),
    "freyr stamps": (symfony.message_id(7), {
        "type": ("S", symfony.NAME), "X-Message-Class": ("S", symfony.CLASS),
        symfony.FREYR_ID_STAMP: stamp("messageId", symfony.message_id(7)),
        symfony.NAME_STAMP: stamp("messageName", symfony.NAME)},
        {}, symfony.BODIES["plain"]),
}
