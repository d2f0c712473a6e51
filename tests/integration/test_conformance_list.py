"""What users of Freyr's message broker for Symfony rely on, as a numbered list
of behaviours: the part that publishes, sets up and routes, on the real servers.

COVERED says where each number is shown: by a test of that number, here or in
test_conformance_inbox.py, or by tests elsewhere that show it already.
"""
import json
import os
import pathlib
import re
import subprocess

import pytest

import databases
import shop as shops
import symfony_rows as symfony
import worlds

TESTS = pathlib.Path(__file__).parents[1]

SCHEME = "'doctrine://default?table"
HERE = None
COVERED = {
    1: ["test_setup_makes_the_column_and_its_index_and_may_run_again"],
    2: ["test_publishing_stores_the_key_and_wants_one"],
    3: ["test_partitions_arrive_in_order"],
    4: HERE,
    # A rejected message is not deleted: it stands in the failed table.
    5: ["test_a_hopeless_row_moves_to_the_failed_table"],
    # An empty key is no partition: there is no order among such rows.
    6: ["test_messages_without_a_key_have_no_order"],
    # Of an ordered outbox partitions are leased.
    7: ["test_keeping_moves_the_lease_of_rows_that_are_still_ours",
        "test_a_lease_that_ran_out_is_anybodys_and_cannot_be_renewed"],
    8: ["test_an_expired_lease_is_delivered_again_with_a_raised_count",
        "test_the_share_of_a_dead_relay_is_taken_when_its_lease_runs_out"],
    9: ["test_setup_adds_the_column_to_a_table_that_is_there"],
    10: HERE, 11: HERE,
    12: ["test_an_expired_lease_comes_again_with_its_tries_raised",
         "test_order_holds_whatever_the_broker_does"],
    13: HERE, 14: HERE, 15: HERE, 16: HERE,
    17: ["test_v17_v18_only_old_ids_are_forgotten_and_counted"],
    18: ["test_v17_v18_only_old_ids_are_forgotten_and_counted"],
    19: ["test_ulid_is_an_id_in_every_place"],
    20: ["test_ulid_is_an_id_in_every_place"],
    21: HERE, 22: HERE, 23: HERE, 24: HERE, 25: HERE, 26: HERE,
    27: HERE, 28: HERE, 29: HERE, 30: HERE, 31: HERE, 32: HERE, 33: HERE,
    34: HERE, 35: HERE, 36: HERE, 37: HERE, 38: HERE,
    39: ["test_an_application_can_admit_messages_itself"],
    40: HERE, 41: HERE, 42: HERE, 43: HERE, 44: HERE, 45: HERE, 46: HERE,
    47: HERE, 48: HERE, 49: HERE,
    50: ["test_an_ordered_dsn_is_read_as_any_other"],
    51: ["test_an_error_moves_nothing",
         "test_an_error_moves_nothing_of_an_ordered_table"],
    52: HERE, 53: HERE, 54: HERE,
    55: ["test_setup_adds_the_number_of_the_transaction_once",
         "test_commits_in_reverse_arrive_in_the_order_of_their_ids",
         "test_v55_the_order_of_commits_is_kept_on_request"],
}

# What the ordered transport of that broker is to be tested for.
ORDERED = {
    "send stores the partition key":
        ["test_publishing_stores_the_key_and_wants_one"],
    "get returns the oldest message of a partition":
        ["test_a_partition_is_read_from_its_head",
         "test_partitions_arrive_in_order"],
    "get skips partitions whose head is locked":
        ["test_a_slot_has_one_owner",
         "test_a_reader_is_given_its_share_and_no_other"],
    "ack deletes the row":
        ["test_v04_what_was_published_leaves_the_outbox"],
    # It stands in the failed table, or waits as the head of its partition.
    "reject deletes the row":
        ["test_what_cannot_be_sent_may_be_skipped",
         "test_a_blocked_head_stays_and_names_its_reason"],
    "setup makes the table with the column":
        ["test_setup_makes_the_column_and_its_index_and_may_run_again"],
    "what a worker that died had comes back":
        ["test_the_share_of_a_dead_relay_is_taken_when_its_lease_runs_out",
         "test_what_another_has_holds_its_partition"],
    "messages with an empty key are independent":
        ["test_messages_without_a_key_have_no_order"],
    "keepalive renews what a worker has":
        ["test_a_lease_that_ran_out_is_anybodys_and_cannot_be_renewed"],
}

# A topology with every kind of key.
TOPOLOGY = """\
message_broker_amqp:
    topology:
        exchanges:
            order.placed: {type: topic}
            order.dead: {type: fanout, durable: false}
        queues:
            orders:
                arguments:
                    x-message-ttl: '60000'
                    x-dead-letter-exchange: order.dead
            graveyard: {durable: true}
        bindings:
            - {exchange: order.placed, queue: orders, binding_key: 'order.#'}
            - {exchange: order.dead, queue: graveyard}
"""
PARTS = 6  # of it, each with a line of its own


def definitions():
    found = set()
    for pattern in ("**/test_*.py", "**/test_*.c", "**/*_suite.c",
                    "**/*_world.h"):
        for file in TESTS.glob(pattern):
            found |= set(re.findall(r"^(?:def )?(test_\w+)\(",
                                    file.read_text(), re.M))
    return found


def test_every_number_of_the_list_is_accounted_for():
    known = definitions()
    assert sorted(COVERED) == list(range(1, 56))
    for number, where in COVERED.items():
        if where is HERE:
            assert any(name.startswith(f"test_v{number:02d}_")
                       for name in known), f"V{number} has no test"
        else:
            assert where and set(where) <= known, f"V{number}: {where}"


def test_every_test_of_the_ordered_transport_has_its_like():
    known = definitions()
    assert len(ORDERED) == 9
    for what, where in ORDERED.items():
        assert set(where) <= known, what


def set_topology(world, text=TOPOLOGY):
    config = world.config_path.read_text()
    world.write_config(config[:config.index("message_broker_amqp")] + text)
    world.exchanges.add("order.dead")
    world.queues.add("graveyard")


@pytest.fixture
def lone_world(tmp_path, vhost):
    """For what no database has a part in."""
    opened = worlds.World(tmp_path, databases.PostgreSQL(),
                          vhost)
    set_topology(opened)
    yield opened
    opened.leave()


@pytest.fixture
def offline_shop(shop):
    """For what no server has a part in: no server listens on port 1."""
    shop.write_config("transports: {amqp: 'amqp://127.0.0.1:1/%2f'}\n"
                      + TOPOLOGY)
    return shop


# The table.

@pytest.fixture(params=["doctrine", "ordered-doctrine"])
def outbox(request, world):
    """Plain, and in the order of keys."""
    world.set_config(replace=[(SCHEME, f"'{request.param}://default?table")])
    return world


def key_of(outbox):
    is_ordered = "'ordered-" in outbox.config_path.read_text()
    return ["--partition-key=a"] if is_ordered else []


def test_v04_what_was_published_leaves_the_outbox(outbox):
    world = outbox
    world.set_up()
    world.insert(3)
    world.relay_all()
    assert world.left() == 0
    assert world.take_numbers() == [0, 1, 2]


def test_v10_setup_may_be_repeated_and_keeps_the_rows(outbox):
    world = outbox
    world.check("setup")
    world.insert(3)
    world.check("setup")
    assert world.left() == 3


def test_v11_the_tables_are_made_on_first_use(outbox):
    outbox.check("publish", "order.placed", "--body", "{}", *key_of(outbox))
    assert outbox.left() == 1


def test_v11_the_relay_makes_its_tables_too(outbox):
    world = outbox
    world.declare()
    world.relay_all()
    assert world.left() == 0
    assert world.failed() == []


def test_v11_nothing_is_made_where_that_is_switched_off(world):
    world.set_config(replace=[("queue_name=outbox'",
                               "queue_name=outbox&auto_setup=false'")])
    result = world.run("publish", "order.placed", "--body", "{}")
    assert result.returncode == 1
    assert "messenger_outbox" in result.stderr
    assert "skirnir setup" in result.stderr


class OpenTransaction:
    """One of PostgreSQL that waits for its commit."""

    def __init__(self, database, sql):
        self.psql = subprocess.Popen(
            ["psql", "-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1",
             "-U", "postgres", "-h", os.environ["SKR_POSTGRESQL_SOCKET_FOLDER"],
             "-p", os.environ["SKR_POSTGRESQL_PORT"], "-d", database.name],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.psql.stdin.write(f"BEGIN;\n{sql};\n\\echo written\n")
        self.psql.stdin.flush()
        assert self.psql.stdout.readline() == "written\n"

    def commit(self):
        self.psql.communicate("COMMIT;\n")
        assert self.psql.returncode == 0


def insert_keyed(number):
    return ("INSERT INTO messenger_outbox (body, headers, queue_name, "
            "partition_key, created_at, available_at) VALUES "
            f"""('{{"n": {number}}}', '{{"type": "order.placed"}}', 'outbox', """
            "'a', CURRENT_TIMESTAMP, CURRENT_TIMESTAMP)")


@pytest.mark.parametrize("claim", ["exclusive", "lease", "shared"])
def test_v55_the_order_of_commits_is_kept_on_request(lone_world, claim):
    world = lone_world
    ordered = ("'doctrine://default?table_name", "'ordered-doctrine://default?"
               "table_name")
    world.set_config(replace=[ordered])
    world.set_up()
    world.set_config(replace=[ordered, (
        "relay_to: amqp", f"relay_to: amqp\n        claim: {claim}\n"
                          "        commit_order: true")])
    refused = world.run("relay", "outbox", "--time-limit", "1")
    assert "transaction_id" in refused.stderr
    assert "skirnir setup" in refused.stderr
    assert "ADD COLUMN IF NOT EXISTS transaction_id" in world.check("setup")
    assert "ran:" not in world.check("setup")
    first = OpenTransaction(world.database, insert_keyed(0))
    second = OpenTransaction(world.database, insert_keyed(1))
    world.ask(insert_keyed(2))
    second.commit()
    relay = world.start_relay("--stop-when-empty")
    relay.wait_for(r"relay\.active")
    first.commit()
    assert relay.end() == 0
    assert world.take_numbers() == [0, 1, 2]


# The deduplication table.

COLUMNS = {
    "mysql":
        "SELECT column_name, column_type, is_nullable, column_key "
        "FROM information_schema.columns WHERE table_schema = DATABASE() "
        "AND table_name = 'message_broker_deduplication' "
        "ORDER BY ordinal_position",
    "postgresql":
        "SELECT column_name, data_type, is_nullable "
        "FROM information_schema.columns "
        "WHERE table_name = 'message_broker_deduplication' "
        "ORDER BY ordinal_position"}
SHAPES = {
    "mysql": ["message_id\tbinary(16)\tNO\tPRI",
                "message_name\tvarchar(255)\tNO\t",
                "processed_at\tdatetime\tNO\tMUL"],
    "postgresql": ["message_id\tbytea\tNO",
                   "message_name\tcharacter varying\tNO",
                   "processed_at\ttimestamp without time zone\tNO"]}


def deduplication_columns(world):
    return world.ask(COLUMNS[world.database.dialect]).split("\n")


def test_v21_forced_setup_makes_the_deduplication_table(world):
    printed = world.check("message-broker:setup-deduplication", "--force")
    assert printed == \
        "Table 'message_broker_deduplication' created successfully.\n"
    shape = SHAPES[world.database.dialect]
    found = deduplication_columns(world)
    # The last line ends with nothing, which the client's output may lose.
    assert [line.rstrip("\t") for line in found] == \
        [line.rstrip("\t") for line in shape]


def test_v22_forced_setup_twice_succeeds(world):
    world.check("setup-deduplication", "--force")
    assert world.check("setup-deduplication", "--force") == \
        "Table 'message_broker_deduplication' already exists, skipping.\n"


def test_v23_setup_without_flags_prints_sql_that_makes_the_table(world):
    printed = world.check("setup-deduplication")
    assert deduplication_columns(world) == [""]
    world.ask(printed)
    assert len(deduplication_columns(world)) == 3
    assert "already exists" in world.check("setup-deduplication", "--force")


# Publishing.

def test_v24_publishing_stores_one_json_row_in_the_queue_of_the_outbox(world):
    world.check("setup")
    printed = world.check("publish", "order.placed", "--body",
                          '{"orderId":7}').strip()
    body, headers, queue = world.ask(
        "SELECT body, headers, queue_name FROM messenger_outbox").split("\t")
    assert (body, queue) == ('{"orderId":7}', "outbox")
    read = json.loads(headers)
    assert read["type"] == "order.placed"
    assert read["Content-Type"] == "application/json"
    assert json.loads(read[symfony.ID_STAMP]) == [{"messageId": printed}]


def test_v25_the_wire_has_name_and_valid_id_and_the_body_has_no_id(world):
    world.set_up()
    printed = world.check("publish", "order.placed", "--body",
                          '{"orderId":7}').strip()
    world.relay_all()
    message, = world.take_all()
    assert message.headers["type"] == "order.placed"
    assert json.loads(message.headers[symfony.ID_STAMP]) == \
        [{"messageId": printed}]
    assert message.headers["X-Message-Id"] == printed
    assert message.properties["message_id"] == printed
    assert re.fullmatch(r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-"
                        r"[89ab][0-9a-f]{3}-[0-9a-f]{12}", printed)
    assert message.body == b'{"orderId":7}'


def test_v26_values_in_a_body_stay_what_they_were_to_the_byte(world):
    """Ids, times and floats: nothing decodes and writes them again."""
    bodies = [symfony.BODIES["plain"], symfony.BODIES["bus"],
              '{"amount":10.0,"small":1e-7,"large":12345678901234567890,'
              '"placedAt":"2026-11-15T02:45:00+00:00", "spaced" : null}']
    world.set_up()
    world.write(*((body, '{"type":"order.placed"}') for body in bodies))
    world.relay_all()
    assert [message.body.decode() for message in world.take_all()] == bodies


# Topology.

def test_v40_the_topology_is_declared_on_the_server(world):
    set_topology(world)
    printed = world.check("setup-amqp").splitlines()
    assert len(printed) == PARTS
    assert all(line.startswith("[OK] ") for line in printed)
    world.check("setup")
    world.insert(1)
    world.relay_all()
    assert world.client.count("orders") == 1
    assert world.client.count("graveyard") == 0


def test_v41_declaring_twice_succeeds(lone_world):
    first = lone_world.check("setup-amqp")
    assert lone_world.check("message-broker:setup-amqp") == first


def test_v42_a_dry_run_needs_no_server(offline_shop):
    printed = offline_shop.check("setup-amqp", "--dry-run")
    assert len(printed.splitlines()) == PARTS


def test_v43_the_dump_is_json_of_exchanges_queues_and_bindings(offline_shop):
    dump = json.loads(offline_shop.check("setup-amqp", "--dump"))
    assert {key: len(value) for key, value in dump.items()} == \
        {"exchanges": 2, "queues": 2, "bindings": 2}
    orders, = (queue for queue in dump["queues"]
               if queue["name"] == "orders")
    assert orders["arguments"]["x-message-ttl"] == 60000


def test_v44_the_dump_goes_to_a_file(offline_shop):
    printed = offline_shop.check("setup-amqp", "--dump")
    for way in (["--output=long.json"], ["-o", "short.json"]):
        assert offline_shop.check("setup-amqp", "--dump", *way) == ""
        path = offline_shop.folder / way[-1].removeprefix("--output=")
        assert path.read_text() == printed


def test_v45_the_option_vhost_beats_the_one_of_the_dsn(lone_world):
    world = lone_world
    world.set_config(replace=[(f"/{world.vhost}'", "/nowhere'")])
    set_topology(world)
    assert world.run("setup-amqp").returncode == 1
    world.check("setup-amqp", f"--vhost={world.vhost}")
    assert world.client.count("graveyard") == 0


@pytest.mark.parametrize("dsn, says", [
    ("http://127.0.0.1/", "amqp:// or amqps:// is needed"),
    ("rabbit", "amqp:// or amqps:// is needed"),
    ("amqp://127.0.0.1:port/", "port"),
    ("amqp://guest:guest@127.0.0.1:1/%2f", "127.0.0.1:1")])
def test_v46_a_bad_dsn_ends_with_1(offline_shop, dsn, says):
    result = offline_shop.run("setup-amqp", f"--dsn={dsn}")
    assert result.returncode == 1
    assert result.stderr.startswith("skirnir setup-amqp: ")
    assert says in result.stderr


# Stamps.

def test_v47_an_id_is_given_once_and_never_again(world):
    """A message that was refused and is sent again is the same message."""
    world.set_config(replace=[("relay_to: amqp", "relay_to: amqp\n        "
                               "retry_strategy: {delay: 1}")])
    world.set_up()
    # A full queue that rejects makes the server refuse all that comes.
    world.client.delete_queue("orders")
    world.declare_queue("orders", "order.placed", arguments={
        "x-max-length": 1, "x-overflow": "reject-publish"})
    world.declare_queue("people", "user.added")
    world.insert(1)
    given = world.check("publish", "order.placed", "--body", "{}").strip()
    # Once this one is there, those in front of it have been sent.
    world.insert(1, name="user.added")
    relay = world.start_relay()
    shops.until(lambda: world.client.count("people") == 1, relay.log)
    shops.until(lambda: world.left() == 1, "all but one to be settled")
    first, = world.take_all()
    world.wait_until_empty(relay)
    second, = world.take_all()
    assert relay.stop() == 0
    ids = [json.loads(message.headers[symfony.ID_STAMP])[0]["messageId"]
           for message in (first, second)]
    assert ids[0] != ids[1] and ids[1] == given
    assert [message.properties["message_id"]
            for message in (first, second)] == ids
    assert world.failed() == []


@pytest.mark.parametrize("stamp", [
    symfony.ID_STAMP, symfony.FREYR_ID_STAMP, "X-Message-Id"])
def test_v47_an_id_that_came_with_the_row_is_not_stamped_over(world, stamp):
    value = symfony.message_id(3)
    if stamp != "X-Message-Id":
        value = json.dumps([{"messageId": value}], separators=(",", ":"))
    world.set_up()
    world.write(("{}", json.dumps({"type": "order.placed", stamp: value})))
    world.relay_all()
    message, = world.take_all()
    assert message.headers[stamp] == value
    assert message.properties["message_id"] == symfony.message_id(3)
    # One stamp of an id; what came in another form gains the usual two.
    stamps = [name for name in message.headers
              if name.endswith("MessageIdStamp")]
    assert stamps == [symfony.ID_STAMP if stamp == "X-Message-Id" else stamp]


def test_v48_of_the_stamps_only_id_and_name_leave(world):
    kept_home = ["BusNameStamp", "DelayStamp", "RedeliveryStamp", "SentStamp",
                 "ErrorDetailsStamp", "SentToFailureTransportStamp",
                 "ReceivedStamp", "TransportMessageIdStamp"]
    headers = json.loads(symfony.FREYR_HEADERS["ordered"])
    headers.update({symfony.SYMFONY + name: "[{}]" for name in kept_home})
    headers["X-Trace"] = "abc"
    world.set_up()
    world.write(("{}", json.dumps(headers)))
    world.relay_all()
    message, = world.take_all()
    assert set(message.headers) == {
        "type", "X-Message-Class", "X-Message-Id", "X-Trace",
        symfony.FREYR_ID_STAMP, symfony.NAME_STAMP}


@pytest.mark.parametrize("headers, says", [
    ("{}", "no type"),
    ("[1]", "not an object"),
    ('{"type":"App\\\\Event\\\\Unknown"}', "message_types"),
    ('{"type":"order.placed","X-Message-Id":"17"}', "17"),
])
def test_v49_what_cannot_be_published_is_kept_with_the_reason(world, headers,
                                                              says):
    world.set_up()
    world.write(('{"n":-1}', headers))
    world.insert(1000)
    world.relay_all()
    assert world.take_numbers() == list(range(1000))
    (body, kept, _), = world.failed()
    assert body == '{"n":-1}'
    reason = json.loads(kept[symfony.ERROR_STAMP])[0]["exceptionMessage"]
    assert says in reason


# Names and classes.

def test_v52_a_class_goes_out_as_a_name_and_comes_back_as_a_class(world):
    """Out: the name in type, the class beside it. Back, in the failed table,
    where Symfony reads it: the class in type."""
    world.set_up()
    world.write(("{}", symfony.FREYR_HEADERS["stamped"]),
                ("{}", json.dumps({
                    **json.loads(symfony.FREYR_HEADERS["named"]),
                    "X-Skirnir-Routing-Key": "nobody.listens"})))
    world.relay_all()
    message, = world.take_all()
    assert message.headers["type"] == symfony.NAME
    assert message.headers["X-Message-Class"] == symfony.CLASS
    (_, headers, queue), = world.failed()
    assert queue == "failed"
    assert headers["type"] == symfony.CLASS
    assert json.loads(headers[symfony.NAME_STAMP]) == \
        [{"messageName": symfony.NAME}]
    assert json.loads(headers[symfony.FREYR_ID_STAMP]) == \
        [{"messageId": symfony.FREYR_IDS["named"]}]


# The configuration.

@pytest.mark.parametrize("old, new, says", [
    ("type: topic", "durable: true", "order.placed: the key 'type' is"),
    ("type: topic", "type: topical", "direct, fanout, topic or headers"),
    ("type: topic", "type: topic, durable: perhaps",
     "exchanges.order.placed.durable"),
    ("exchange: order.placed, queue", "queue", "exchange"),
    ("queue: orders, binding_key", "binding_key", "queue"),
    ("binding_key: 'order.#'", "routing_key: 'order.#'", "routing_key"),
    ("x-message-ttl: '60000'", "x-message-ttl: soon", "x-message-ttl"),
    ("    topology:", "    routing: {order.placed: {queue: x}}\n"
     "    topology:", "routing.order.placed.queue"),
    ("    topology:", "    routing: {order.placed: {sender: nobody}}\n"
     "    topology:", "routing.order.placed.sender"),
])
def test_v54_config_check_names_each_mistake(offline_shop, old, new, says):
    text = offline_shop.config_path.read_text()
    assert old in text
    offline_shop.write_config(text.replace(old, new, 1))
    result = offline_shop.run("config", "check")
    assert result.returncode == 3
    assert re.search(r"skirnir\.yaml:\d+: message_broker_amqp\..*" +
                     re.escape(says), result.stdout)


def test_v54_a_good_configuration_passes(offline_shop):
    offline_shop.write_config(
        offline_shop.config_path.read_text() + "    routing:\n        "
        "order.placed: {sender: amqp, routing_key: order.key}\n")
    assert "ok" in offline_shop.check("config", "check")
