# SPDX-License-Identifier: MIT
"""The worker of tests/integration/test_clients.py: an effect for each order,
and a byte in the file `progress` for each call."""
import sys

from skirnir import inbox, worker
from test_skirnir import (connect_mariadb, connect_postgresql, connect_sqlite)

connection = {"sqlite": connect_sqlite, "postgresql": connect_postgresql,
              "mariadb": connect_mariadb}[sys.argv[1]](True, 10)
progress = open("progress", "ab", buffering=0)


def place(connection, message):
    progress.write(b".")
    connection.cursor().execute("INSERT INTO effects (order_id) VALUES "
                                f"('{message.json()['orderId']}')")


worker.run(lambda message: inbox.handle(connection, message, place),
           deduplicates=True)
