"""Rows as Symfony Messenger's serializers write them into a table."""
import json

CLASS = r"App\Event\OrderPlaced"
NAME = "order.placed"
SYMFONY = r"X-Message-Stamp-Symfony\Component\Messenger\Stamp" + "\\"
ID_STAMP = r"X-Message-Stamp-Freyr\MessageBroker\Inbox\MessageIdStamp"
BUS_STAMP = SYMFONY + "BusNameStamp"
DELAY_STAMP = SYMFONY + "DelayStamp"
REDELIVERY_STAMP = SYMFONY + "RedeliveryStamp"
ERROR_STAMP = SYMFONY + "ErrorDetailsStamp"
FAILURE_STAMP = SYMFONY + "SentToFailureTransportStamp"


def message_id(number):
    return f"01932b6e-7c00-7000-8000-{number:012d}"


# The texts as PHP writes them: escaped slashes, escapes in the body that a
# decoder would undo, stamps as JSON inside of JSON.
HEADERS = {
    "plain":
        r'{"type":"App\\Event\\OrderPlaced",'
        r'"X-Message-Stamp-Freyr\\MessageBroker\\Inbox\\MessageIdStamp":'
        r'"[{\"messageId\":\"01932b6e-7c00-7000-8000-000000000001\"}]",'
        r'"Content-Type":"application\/json"}',
    "bus":
        r'{"type":"App\\Event\\OrderPlaced",'
        r'"X-Message-Stamp-Freyr\\MessageBroker\\Inbox\\MessageIdStamp":'
        r'"[{\"messageId\":\"01932b6e-7c00-7000-8000-000000000002\"}]",'
        r'"X-Message-Stamp-Symfony\\Component\\Messenger\\Stamp\\BusNameStamp":'
        r'"[{\"busName\":\"messenger.bus.default\"}]",'
        r'"Content-Type":"application\/json"}',
    "delay":
        r'{"type":"App\\Event\\OrderPlaced",'
        r'"X-Message-Stamp-Freyr\\MessageBroker\\Inbox\\MessageIdStamp":'
        r'"[{\"messageId\":\"01932b6e-7c00-7000-8000-000000000004\"}]",'
        r'"X-Message-Stamp-Symfony\\Component\\Messenger\\Stamp\\DelayStamp":'
        r'"[{\"delay\":60000}]","Content-Type":"application\/json"}',
}
IDS = {"plain": message_id(1), "bus": message_id(2), "delay": message_id(4)}
BODIES = {
    "plain":
        r'{"orderId":"01930001-0000-7000-8000-000000000001",'
        r'"customerId":"customer-000001","totalAmount":100.14285714285714,'
        r'"currency":"EUR","placedAt":"2026-11-15T02:45:00+00:00"}',
    "bus":
        r'{"orderId":"01930003-0000-7000-8000-000000000003",'
        r'"totalAmount":100.42857142857143,"note":"h\u00e9llo \ud83d\ude00 '
        r'\"quoted\" \\ back\/slash <tag> \u2028 \u0000nul"}',
    "delay":
        r'{"orderId":"01930004-0000-7000-8000-000000000004"}',
}

# PHP's own serializer, which only PHP reads: as it is, and in base64, which
# Symfony uses where the text would not be UTF-8.
PHP_BODIES = [
    r'O:36:\"Symfony\\Component\\Messenger\\Envelope\":2:{s:44:\"\0Symfony'
    r'\\Component\\Messenger\\Envelope\0stamps\";a:0:{}s:45:\"\0Symfony'
    r'\\Component\\Messenger\\Envelope\0message\";O:21:\"App\\Event'
    r'\\OrderPlaced\":1:{s:7:\"orderId\";s:1:\"6\";}}',
    "TzozNjoiU3ltZm9ueVxDb21wb25lbnRcTWVzc2VuZ2VyXEVudmVsb3BlIjoyOnt9",
]
PHP_HEADERS = "[]"


def check():
    """The texts say what the tests believe."""
    for name, headers in HEADERS.items():
        read = json.loads(headers)
        assert read["type"] == CLASS
        assert json.loads(read[ID_STAMP]) == [{"messageId": IDS[name]}]
        json.loads(BODIES[name])


check()
