# SPDX-License-Identifier: MIT
"""Handling a message once: the record of it and the effects of a function are
committed together, or neither is."""
import uuid

from .database import SkirnirError, insert, kind_of, run, table_name
from .worker import Wait, check_ran


def handle(connection, message, function):
    """Begins a transaction on the connection, records the message, calls
    function(connection, message), and commits. False: it was recorded before,
    and the function was not called. What the function raises is raised after a
    rollback; it must not end the transaction itself. Wait: another
    transaction has the record."""
    kind = kind_of(connection)
    if kind.is_open(connection):
        raise SkirnirError("the connection is inside a transaction: end it "
                           "first, as this one ends with what is handled")
    after = kind.hold(connection)
    try:
        if not record(connection, kind, message):
            end(connection, "ROLLBACK", after)
            return False
        check_ran(function(connection, message))
        # Fails if the transaction in which the record stands was ended.
        run(connection, "RELEASE SAVEPOINT skirnir")
        end(connection, "COMMIT", after)
        return True
    except BaseException:
        roll_back(connection, after)
        raise


def record(connection, kind, message):
    table = table_name(kind, message.deduplication["table"])
    try:
        run(connection, kind.begin)
        run(connection, "SAVEPOINT skirnir")
        if message.id is None:
            return True  # nothing tells whether it came before
        return insert(
            connection,
            f"INSERT INTO {table} (message_id, message_name, processed_at) "
            f"VALUES ({kind.mark}, {kind.mark}, {kind.now}){kind.once}",
            (uuid.UUID(message.id).bytes, message.deduplication["name"]))
    except Exception as error:
        if kind.is_duplicate(error):
            return False
        if kind.is_locked(error):
            raise Wait(f"the record of the message is locked: {error}") \
                from error
        raise


def end(connection, how, after):
    for sql in (how, *after):
        run(connection, sql)


def roll_back(connection, after):
    """The error that led to it is the one to be told."""
    try:
        end(connection, "ROLLBACK", after)
    except Exception:
        pass
