# SPDX-License-Identifier: MIT
"""What differs between the databases. A connection is that of sqlite3, of
psycopg (3) or of PyMySQL, and stays the caller's."""
import inspect
import re


class SkirnirError(Exception):
    """What was asked for cannot be done; nothing was written."""


class Kind:
    @staticmethod
    def hold(connection):
        """Before a transaction; what is to be run after its end."""
        return []

    @staticmethod
    def is_duplicate(error):
        return False


class Sqlite(Kind):
    mark = "?"
    quote = '"{}"'
    now = "datetime('now')"
    later = "datetime('now', '+' || (({ms} + 999) / 1000.0) || ' seconds')"
    once = " ON CONFLICT (message_id) DO NOTHING"
    begin = "BEGIN IMMEDIATE"

    @staticmethod
    def is_open(connection):
        return connection.in_transaction

    @classmethod
    def may_publish(cls, connection):
        # Unless it is in autocommit, the module begins before an INSERT.
        return connection.in_transaction or (
            getattr(connection, "autocommit", -1) is False
            or connection.isolation_level is not None
            and getattr(connection, "autocommit", -1) is not True)

    @staticmethod
    def is_locked(error):
        return "locked" in str(error)


class Postgresql(Kind):
    mark = "%s"
    quote = '"{}"'
    folds = True
    now = "date_trunc('second', statement_timestamp() AT TIME ZONE 'UTC')"
    later = ("date_trunc('second', (statement_timestamp() + make_interval("
             "secs => ({ms} + 999) / 1000.0)) AT TIME ZONE 'UTC')")
    once = " ON CONFLICT (message_id) DO NOTHING"
    begin = "BEGIN"
    IDLE = 0  # PQTRANS_IDLE

    @classmethod
    def is_open(cls, connection):
        return connection.info.transaction_status != cls.IDLE

    @classmethod
    def may_publish(cls, connection):
        return not connection.autocommit or cls.is_open(connection)

    @staticmethod
    def is_locked(error):
        return getattr(error, "sqlstate", "") in ("55P03", "40P01", "40001")


class Mysql(Kind):
    mark = "%s"
    quote = "`{}`"
    now = "UTC_TIMESTAMP()"
    later = ("(UTC_TIMESTAMP() + INTERVAL ((MICROSECOND(UTC_TIMESTAMP(3)) DIV "
             "1000 + {ms} + 999) DIV 1000) SECOND)")
    once = ""  # a second row is error 1062; IGNORE would hide others
    begin = "START TRANSACTION"
    IN_TRANSACTION = 1  # of the server's status

    @classmethod
    def is_open(cls, connection):
        run(connection, "DO 0")  # after an error the status is an old one
        return bool(connection.server_status & cls.IN_TRANSACTION)

    @classmethod
    def may_publish(cls, connection):
        return cls.is_open(connection) or not connection.get_autocommit()

    @staticmethod
    def hold(connection):
        """After a deadlock, which ends the transaction, nothing is to commit by
        itself, even if the caller goes on."""
        if not connection.get_autocommit():
            return []
        run(connection, "SET autocommit = 0")
        return ["SET autocommit = 1"]

    @staticmethod
    def is_duplicate(error):
        return error.args[:1] == (1062,)

    @staticmethod
    def is_locked(error):
        return error.args[:1] in ((1205,), (1213,))


KINDS = {"sqlite3": Sqlite, "psycopg": Postgresql, "pymysql": Mysql}


def kind_of(connection):
    if inspect.iscoroutinefunction(getattr(connection, "commit", None)):
        raise SkirnirError(f"{type(connection).__name__} is asynchronous: a "
                           "connection that is not is needed")
    for part in type(connection).__mro__:
        kind = KINDS.get(part.__module__.partition(".")[0])
        if kind is not None:
            return kind
    raise SkirnirError(f"{type(connection).__name__} is no connection of "
                       f"{', '.join(KINDS)}")


def table_name(kind, name):
    """Quoted, in the case that the server would give it without quotes."""
    if not re.fullmatch("[A-Za-z_][A-Za-z0-9_]{0,62}", name, re.A):
        raise SkirnirError(f"table name '{name}': letters, digits and "
                           "underscores are needed, at most 63, not beginning "
                           "with a digit")
    return kind.quote.format(name.lower() if hasattr(kind, "folds") else name)


def run(connection, sql, values=()):
    """The number of rows that were changed."""
    cursor = connection.cursor()
    try:
        cursor.execute(sql, values)
        return cursor.rowcount
    finally:
        cursor.close()


def insert(connection, sql, values):
    """Whether the row is new. A driver that does not tell is not believed: one
    in pipeline mode has only sent it."""
    count = run(connection, sql, values)
    if count not in (0, 1):
        raise SkirnirError(f"the driver tells of {count} rows where one was "
                           "written: roll back; a connection in pipeline mode "
                           "is of no use here")
    return count == 1


def check_engine(connection, kind, table):
    """A table that keeps what is rolled back would break the promise."""
    if kind is not Mysql:
        return
    cursor = connection.cursor()
    cursor.execute("SELECT t.ENGINE FROM information_schema.TABLES AS t JOIN "
                   "information_schema.ENGINES AS e ON e.ENGINE = t.ENGINE "
                   "WHERE t.TABLE_SCHEMA = DATABASE() AND t.TABLE_NAME = %s "
                   "AND e.TRANSACTIONS <> 'YES'", (table,))
    found = cursor.fetchone()
    cursor.close()
    if found is not None:
        raise SkirnirError(f"table {table} has the engine {found[0]}, which "
                           "takes no part in transactions")
