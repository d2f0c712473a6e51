"""Rows as Symfony Messenger's serializers write them into a table."""
import json

CLASS = r"App\Event\OrderPlaced"
NAME = "order.placed"
SYMFONY = r"X-Message-Stamp-Symfony\Component\Messenger\Stamp" + "\\"
ID_STAMP = r"X-Message-Stamp-Freyr\MessageBroker\Inbox\MessageIdStamp"
BUS_STAMP = SYMFONY + "BusNameStamp"
DELAY_STAMP = SYMFONY + "DelayStamp"
REDELIVERY_STAMP = SYMFONY + "RedeliveryStamp"
FREYR = r"X-Message-Stamp-Freyr\MessageBroker\Contracts" + "\\"
FREYR_ID_STAMP = FREYR + "MessageIdStamp"
NAME_STAMP = FREYR + "MessageNameStamp"
PARTITION_STAMP = FREYR + "PartitionKeyStamp"
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

# Of an application with Freyr's bundle: the message's name stands in a stamp,
# ids are UUIDs or ULIDs, an ordered outbox adds the partition's key, and its
# OutboxSerializer puts the name into type and the class beside it.
ULID = "01HF7YAT00E8R3X5JZQK9W2M4N"
FREYR_HEADERS = {
    "stamped":
        r'{"type":"App\\Event\\OrderPlaced",'
        r'"X-Message-Stamp-Symfony\\Component\\Messenger\\Stamp\\BusNameStamp":'
        r'"[{\"busName\":\"messenger.bus.default\"}]",'
        r'"X-Message-Stamp-Freyr\\MessageBroker\\Contracts\\MessageIdStamp":'
        r'"[{\"messageId\":\"01932b6e-7c00-7000-8000-000000000007\"}]",'
        r'"X-Message-Stamp-Freyr\\MessageBroker\\Contracts\\MessageNameStamp":'
        r'"[{\"messageName\":\"order.placed\"}]",'
        r'"Content-Type":"application\/json"}',
    "ordered":
        r'{"type":"App\\Event\\OrderPlaced",'
        r'"X-Message-Stamp-Freyr\\MessageBroker\\Contracts\\MessageIdStamp":'
        r'"[{\"messageId\":\"01HF7YAT00E8R3X5JZQK9W2M4N\"}]",'
        r'"X-Message-Stamp-Freyr\\MessageBroker\\Contracts\\MessageNameStamp":'
        r'"[{\"messageName\":\"order.placed\"}]",'
        r'"X-Message-Stamp-Freyr\\MessageBroker\\Contracts\\'
        r'PartitionKeyStamp":"[{\"partitionKey\":\"customer-7\"}]",'
        r'"Content-Type":"application\/json"}',
    "named":
        r'{"type":"order.placed",'
        r'"X-Message-Stamp-Freyr\\MessageBroker\\Contracts\\MessageIdStamp":'
        r'"[{\"messageId\":\"01932b6e-7c00-7000-8000-000000000008\"}]",'
        r'"X-Message-Stamp-Freyr\\MessageBroker\\Contracts\\MessageNameStamp":'
        r'"[{\"messageName\":\"order.placed\"}]",'
        r'"X-Message-Class":"App\\Event\\OrderPlaced",'
        r'"Content-Type":"application\/json"}',
}
FREYR_IDS = {"stamped": message_id(7), "ordered": ULID,
             "named": message_id(8)}

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
    for name, headers in FREYR_HEADERS.items():
        read = json.loads(headers)
        assert json.loads(read[FREYR_ID_STAMP]) == \
            [{"messageId": FREYR_IDS[name]}]
        assert json.loads(read[NAME_STAMP]) == [{"messageName": NAME}]


check()
