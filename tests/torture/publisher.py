"""An application of another language: orders and outbox rows by plain SQL.

    publisher.py DATABASE NAME SEED

Each line of standard input asks for a burst of so many orders, a transaction
each, of which one in ten is rolled back. At the end of the input it prints the
orders that it rolled back, one a line.
"""
import json
import os
import random
import sqlite3
import sys
import time
import uuid

CROCKFORD = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
ID_STAMP = r"X-Message-Stamp-Freyr\MessageBroker\Inbox\MessageIdStamp"


def make_ulid(rng):
    number = int(time.time() * 1000) << 80 | rng.getrandbits(80)
    return "".join(CROCKFORD[number >> shift & 31]
                   for shift in range(125, -1, -5))


def make_headers(rng):
    """Ids in all forms that publishers use, and none at all."""
    headers = {"type": "order.placed"}
    form = rng.randrange(4)
    if form == 0:
        headers[ID_STAMP] = json.dumps(
            [{"messageId": str(uuid.UUID(int=rng.getrandbits(128)))}])
    elif form == 1:
        headers["X-Message-Id"] = make_ulid(rng)
    elif form == 2:
        headers["X-Message-Id"] = str(uuid.UUID(int=rng.getrandbits(128)))
    return json.dumps(headers)


def place_order(connection, order_id, rng):
    """False: it was rolled back."""
    connection.execute("BEGIN IMMEDIATE")
    connection.execute("INSERT INTO orders VALUES (?)", (order_id,))
    connection.execute(
        "INSERT INTO messenger_outbox "
        "(body, headers, queue_name, created_at, available_at) "
        "VALUES (?, ?, 'outbox', datetime('now'), datetime('now'))",
        (json.dumps({"orderId": order_id, "note": "x" * rng.randrange(200)}),
         make_headers(rng)))
    keep = rng.random() >= 0.1
    connection.execute("COMMIT" if keep else "ROLLBACK")
    return keep


def main():
    path, name, seed = sys.argv[1:]
    rng = random.Random(f"{seed}-{name}")
    connection = sqlite3.connect(path, timeout=60, isolation_level=None)
    connection.execute("PRAGMA synchronous = NORMAL")
    rolled_back = []
    number = 0
    for line in sys.stdin:
        for _ in range(int(line)):
            number += 1
            order_id = f"{name}-{number}"
            if not place_order(connection, order_id, rng):
                rolled_back.append(order_id)
    print("\n".join(rolled_back))


if __name__ == "__main__":
    # A test that fails goes away without closing anything.
    sys.stdout = os.fdopen(1, "w", buffering=1)
    main()
