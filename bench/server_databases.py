"""What the cases need to know of each database server: everything runs with
the server's own defaults, durability included."""
import subprocess
import sys

from harness import ROOT, Failure, wait_for

sys.path.insert(0, str(ROOT / "tests"))

import servers  # noqa: E402: found through the path above

REMEMBERED = "remembered"  # the large deduplication table, while not in use


class Session:
    """A client that stays connected, with a transaction open."""

    def __init__(self, command, begin):
        self._process = subprocess.Popen(
            [str(word) for word in command], stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, text=True)
        self._process.stdin.write(f"{begin}\nSELECT 'it is open';\n")
        self._process.stdin.flush()
        for line in self._process.stdout:
            if line.strip() == "it is open":
                return
        raise Failure("a session of another client does not begin")

    def close(self):
        self._process.stdin.close()
        if self._process.wait(30) != 0:
            raise Failure("a session of another client ends with an error")


class MariaDB(servers.MariaDB):
    """As Debian's package is: without a binary log."""
    client_kind = "mariadb"  # what the clients of clients/ call it
    counts_by_session = True  # what one session did has to be taken off
    tells = False  # of commits, so that a relay need not poll

    def __init__(self):
        super().__init__(settings={"skip-log-bin": None})

    def make_tables(self):
        self.ask("CREATE TABLE effect (n BIGINT AUTO_INCREMENT PRIMARY KEY, "
                 "id BINARY(16) NOT NULL, body LONGTEXT NOT NULL)")
        self.ask("CREATE TABLE effects (n BIGINT AUTO_INCREMENT PRIMARY KEY, "
                 "order_id VARCHAR(40) NOT NULL)")

    def ask(self, sql):
        return self.query(sql, "skirnir").strip()

    def version(self):
        return "MariaDB " + self.ask("SELECT VERSION()")

    @property
    def relay_url(self):
        return self.url

    now = "UTC_TIMESTAMP()"

    def numbers(self, count):
        """A table of the numbers from 1 on, in the column seq."""
        return f"seq_1_to_{count}"

    def keep_as(self, name, outbox="messenger_outbox"):
        self.ask(f"CREATE TABLE {name} LIKE {outbox}; INSERT INTO "
                 f"{name} SELECT * FROM {outbox}")

    def stage(self, name, outbox="messenger_outbox"):
        """The outbox becomes a copy of a table, with nothing left for the
        server to write."""
        self.ask(f"TRUNCATE {outbox}" + (
            "" if name is None else
            f"; INSERT INTO {outbox} SELECT * FROM {name}"))
        self.settle()

    def settle(self):
        self.ask("SET GLOBAL innodb_max_dirty_pages_pct = 0")
        wait_for(lambda: self._status("Innodb_buffer_pool_pages_dirty") < 200,
                 lambda: Failure("MariaDB does not write its pages"), 300)
        self.ask("SET GLOBAL innodb_max_dirty_pages_pct = DEFAULT")

    def empty_inbox(self):
        self.ask("TRUNCATE effect; TRUNCATE effects; "
                 "TRUNCATE message_broker_deduplication")

    def remember_many(self, count):
        """Ids of yesterday, in the order of time."""
        self.ask(
            f"CREATE TABLE {REMEMBERED} LIKE message_broker_deduplication; "
            f"INSERT INTO {REMEMBERED} SELECT UNHEX(CONCAT(LPAD(HEX("
            "(UNIX_TIMESTAMP() - 86400) * 1000 + seq DIV 200), 12, '0'), "
            "'70008000', LPAD(HEX(seq), 12, '0'))), 'order.placed', "
            f"UTC_TIMESTAMP() FROM seq_1_to_{count}")

    def swap_remembered(self):
        self.ask("RENAME TABLE message_broker_deduplication TO swapped, "
                 f"{REMEMBERED} TO message_broker_deduplication, swapped TO "
                 f"{REMEMBERED}")

    def forget_newest(self):
        self.ask("TRUNCATE effect; DELETE FROM message_broker_deduplication "
                 "WHERE message_id > UNHEX(CONCAT(LPAD(HEX((UNIX_TIMESTAMP() "
                 "- 43200) * 1000), 12, '0'), REPEAT('0', 20)))")
        self.settle()

    def open_session(self):
        return Session(
            [*self._client("mariadb"), "--batch", "--skip-column-names",
             "--unbuffered", "skirnir"],
            "START TRANSACTION; INSERT INTO effect (id, body) VALUES "
            "(REPEAT('x', 16), ''); SELECT id FROM messenger_outbox LIMIT 1;")

    def make_foreign(self):
        """A table that no relay looks at, and what fills it, a row in each
        transaction. Nothing of it is to survive, so that it is quick."""
        self.ask("SET GLOBAL innodb_flush_log_at_trx_commit = 0; "
                 "SET GLOBAL sync_binlog = 0; "
                 "CREATE TABLE foreign_rows (id BIGINT AUTO_INCREMENT PRIMARY "
                 "KEY, body VARCHAR(300) NOT NULL)")
        self.ask("DELIMITER //\n"
                 "CREATE PROCEDURE write_foreign(seconds INT) BEGIN DECLARE "
                 "ending DATETIME DEFAULT SYSDATE() + INTERVAL seconds SECOND; "
                 "WHILE SYSDATE() < ending DO INSERT INTO foreign_rows (body) "
                 "VALUES (REPEAT('x', 200)); END WHILE; END//\n")

    def write_foreign(self, seconds):
        """How many transactions there were."""
        self.ask("TRUNCATE foreign_rows")
        self.ask(f"CALL write_foreign({seconds})")
        return int(self.ask("SELECT COUNT(*) FROM foreign_rows"))

    def begin_counting(self):
        pass

    count_always = end_counting = begin_counting

    def statements(self):
        return self._status("Questions")

    def _status(self, name):
        return int(self.query(f"SHOW GLOBAL STATUS LIKE '{name}'").split()[1])


class Listening(MariaDB):
    """With a log that a relay can listen to; for cases about waiting alone."""
    tells = True

    def __init__(self):
        super().__init__()
        self.settings = {"binlog-format": "ROW"}


class MySQL(servers.MySQL):
    """Its own default is such a log."""
    counts_by_session = True
    tells = True
    make_tables = MariaDB.make_tables
    make_foreign = MariaDB.make_foreign
    write_foreign = MariaDB.write_foreign
    ask = MariaDB.ask
    relay_url = MariaDB.relay_url
    now = MariaDB.now
    stage = MariaDB.stage
    begin_counting = MariaDB.begin_counting
    end_counting = MariaDB.end_counting
    count_always = MariaDB.count_always
    statements = MariaDB.statements
    _status = MariaDB._status

    def version(self):
        return "MySQL " + self.ask("SELECT VERSION()")

    def settle(self):
        pass


class PostgreSQL(servers.PostgreSQL):
    client_kind = "postgresql"
    counts_by_session = False  # statements are counted by their user
    tells = False

    def make_tables(self):
        self.ask("CREATE TABLE effect (n BIGSERIAL PRIMARY KEY, id BYTEA NOT "
                 "NULL, body TEXT NOT NULL)")
        self.ask("CREATE TABLE effects (n BIGSERIAL PRIMARY KEY, "
                 "order_id TEXT NOT NULL)")
        self.ask("CREATE ROLE relay SUPERUSER LOGIN")

    def ask(self, sql):
        return self.query(sql).strip()

    def version(self):
        return "PostgreSQL " + self.ask("SHOW server_version").split()[0]

    @property
    def relay_url(self):
        return self.url.replace("postgres@", "relay@")

    now = "(NOW() AT TIME ZONE 'UTC')"

    def numbers(self, count):
        return f"GENERATE_SERIES(1::BIGINT, {count}) seq"

    def keep_as(self, name, outbox="messenger_outbox"):
        self.ask(f"CREATE TABLE {name} AS SELECT * FROM {outbox}")

    def stage(self, name, outbox="messenger_outbox"):
        self.ask(f"TRUNCATE {outbox} RESTART IDENTITY")
        if name is not None:
            self.ask(f"INSERT INTO {outbox} SELECT * FROM {name}; "
                     "SELECT SETVAL(PG_GET_SERIAL_SEQUENCE("
                     f"'{outbox}', 'id'), MAX(id)) FROM {outbox}")
        self.settle()

    def settle(self):
        self.ask("CHECKPOINT")

    def empty_inbox(self):
        self.ask("TRUNCATE effect, effects RESTART IDENTITY; "
                 "TRUNCATE message_broker_deduplication")

    def remember_many(self, count):
        self.ask(
            f"CREATE TABLE {REMEMBERED} (LIKE message_broker_deduplication "
            f"INCLUDING ALL); INSERT INTO {REMEMBERED} SELECT DECODE(LPAD("
            "TO_HEX((EXTRACT(EPOCH FROM NOW())::BIGINT - 86400) * 1000 + n / "
            "200), 12, '0') || '70008000' || LPAD(TO_HEX(n), 12, '0'), "
            "'hex'), 'order.placed', NOW() AT TIME ZONE 'UTC' FROM "
            f"GENERATE_SERIES(1::BIGINT, {count}) n")
        self.ask(f"VACUUM ANALYZE {REMEMBERED}")

    def swap_remembered(self):
        self.ask(
            "ALTER TABLE message_broker_deduplication RENAME TO swapped; "
            f"ALTER TABLE {REMEMBERED} RENAME TO message_broker_deduplication;"
            f" ALTER TABLE swapped RENAME TO {REMEMBERED}")

    def forget_newest(self):
        self.ask("TRUNCATE effect RESTART IDENTITY; DELETE FROM "
                 "message_broker_deduplication WHERE message_id > DECODE("
                 "LPAD(TO_HEX((EXTRACT(EPOCH FROM NOW())::BIGINT - 43200) * "
                 "1000), 12, '0') || REPEAT('0', 20), 'hex')")
        self.ask("VACUUM message_broker_deduplication")
        self.settle()

    def open_session(self):
        return Session(
            [self._program("psql"), "-XAtq", "-h", self.socket_folder, "-p",
             self.port, "-U", "postgres", "-d", "skirnir"],
            "BEGIN ISOLATION LEVEL REPEATABLE READ; INSERT INTO effect (id, "
            "body) VALUES ('x', ''); SELECT id FROM messenger_outbox LIMIT 1;")

    # Counting costs a little: it is on only where it is asked for.
    counts_always = False

    def count_always(self):
        self.begin_counting()
        self.counts_always = True

    def begin_counting(self):
        if self.counts_always:
            return
        self.settings["shared_preload_libraries"] = "pg_stat_statements"
        self.restart()
        self.ask("CREATE EXTENSION IF NOT EXISTS pg_stat_statements")

    def end_counting(self):
        if self.counts_always:
            return
        del self.settings["shared_preload_libraries"]
        self.restart()

    def statements(self):
        return int(self.ask(
            "SELECT COALESCE(SUM(calls), 0) FROM pg_stat_statements WHERE "
            "userid IN (SELECT oid FROM pg_roles WHERE rolname IN ('relay', "
            "'bench'))"))


KINDS = {"mariadb": MariaDB, "mariadb-binlog": Listening, "mysql": MySQL,
         "postgresql": PostgreSQL}
