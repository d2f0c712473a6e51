# SPDX-License-Identifier: MIT
"""Run by tests/integration/test_clients.py, which makes the databases that
SKR_CLIENT_SQLITE, _POSTGRESQL and _MARIADB name, with their tables."""
import concurrent.futures
import json
import os
import pathlib
import sqlite3
import subprocess
import sys
import unittest
import urllib.parse
import uuid

import skirnir
from skirnir import inbox, outbox, worker

VECTORS = pathlib.Path(__file__).parents[2] / "vectors"
HERE = pathlib.Path(__file__).parent


def vectors(name):
    return json.loads((VECTORS / name).read_text("utf-8"))


def connect_sqlite(autocommit, patience_s=0):
    return sqlite3.connect(os.environ["SKR_CLIENT_SQLITE"], timeout=patience_s,
                           isolation_level=None if autocommit else "")


def connect_postgresql(autocommit, patience_s=0):
    import psycopg
    return psycopg.connect(
        os.environ["SKR_CLIENT_POSTGRESQL"], autocommit=autocommit,
        options=f"-c lock_timeout={patience_s * 1000 + 50}ms")


def connect_mariadb(autocommit, patience_s=0):
    import pymysql
    url = urllib.parse.urlsplit(os.environ["SKR_CLIENT_MARIADB"])
    return pymysql.connect(
        host=url.hostname, port=url.port, user=url.username,
        database=url.path[1:], autocommit=autocommit,
        init_command=f"SET innodb_lock_wait_timeout = {patience_s}")


def ask(connection, sql):
    cursor = connection.cursor()
    cursor.execute(sql)
    rows = cursor.fetchall()
    cursor.close()
    return [tuple(row) for row in rows]


def message(**more):
    return worker.Message({
        "id": "01890a5d-ac96-774b-bcce-b302099a8057", "body": "{}",
        "deduplication": {"table": "message_broker_deduplication",
                          "name": "App\\Order"}, **more})


def effect(connection, message):
    cursor = connection.cursor()
    cursor.execute("INSERT INTO effects (order_id) VALUES ('1')")
    cursor.close()


class Common:
    def setUp(self):
        self.db = self.connect(False)
        self.addCleanup(self.db.close)
        self.addCleanup(self.db.rollback)
        for table in ("messenger_outbox", "other_outbox", "kafka_outbox",
                      "message_broker_deduplication", "effects"):
            table = "Other_Outbox" if table[0] == "o" and \
                self.connect is not connect_postgresql else table
            self.db.cursor().execute(f"DELETE FROM {table}")
        self.db.commit()

    def test_vectors(self):
        for vector in vectors("publish.json"):
            with self.subTest(vector["about"]):
                self.one_vector(vector)
                self.db.rollback()

    def one_vector(self, vector):
        given = dict(vector["message"])
        name = given.pop("name")
        body = given.pop("body", None)
        if body is None:
            body = bytes.fromhex(given.pop("body_hex"))
        options = vector.get("outbox", {})
        if "error" in vector:
            with self.assertRaises(skirnir.SkirnirError) as caught:
                skirnir.Outbox(**options).publish(self.db, name, body, **given)
            self.assertIn(vector["error"], str(caught.exception))
            return
        box = skirnir.Outbox(**options)
        box.publish(self.db, name, body, **given)
        quote = "`" if self.connect is connect_mariadb else '"'
        columns = ", ".join(f"{quote}{name}{quote}" for name in vector["row"])
        table = box.table
        [row] = ask(self.db, f"SELECT {columns} FROM {table}")
        self.assertEqual(row, tuple(vector["row"].values()))

    def test_a_message_is_there_if_the_transaction_commits(self):
        id = skirnir.publish(self.db, "order.placed", {"orderId": 1, "ü": "/"})
        self.db.rollback()
        self.assertEqual(ask(self.db, "SELECT id FROM messenger_outbox"), [])
        again = skirnir.publish(self.db, "order.placed", {"orderId": 1})
        self.db.commit()
        self.assertEqual(ask(self.db, "SELECT body FROM messenger_outbox"),
                         [('{"orderId":1}',)])
        self.assertEqual(id[14], "7")
        self.assertLess(id, again)

    def test_autocommit_is_refused(self):
        db = self.connect(True)
        self.addCleanup(db.close)
        with self.assertRaises(skirnir.SkirnirError) as caught:
            skirnir.publish(db, "order.placed", {})
        self.assertIn("autocommit", str(caught.exception))
        db.cursor().execute("BEGIN")
        skirnir.publish(db, "order.placed", {})
        db.cursor().execute("COMMIT")
        self.assertEqual(
            len(ask(self.db, "SELECT id FROM messenger_outbox")), 1)

    def test_an_id_of_zeros_is_none(self):
        id = skirnir.publish(self.db, "order.placed", {}, id=uuid.UUID(int=0))
        self.assertEqual(id[14], "7")

    def test_what_is_no_json_is_refused(self):
        with self.assertRaises(ValueError):
            skirnir.publish(self.db, "order.placed", {"cents": float("nan")})

    def test_a_delay_is_never_short(self):
        skirnir.publish(self.db, "order.placed", {}, delay=60.5)
        [(seconds,)] = ask(self.db, f"SELECT {self.seconds} "
                           "FROM messenger_outbox")
        self.assertIn(int(seconds), (61, 62))

    def test_what_is_handled_is_recorded_with_it(self):
        self.db.rollback()
        self.assertTrue(inbox.handle(self.db, message(), effect))
        self.assertFalse(inbox.handle(self.db, message(), effect))
        self.assertEqual(len(ask(self.db, "SELECT order_id FROM effects")), 1)
        [(id, name)] = ask(self.db, "SELECT message_id, message_name FROM "
                           "message_broker_deduplication")
        self.assertEqual(bytes(id).hex(), "01890a5dac96774bbcceb302099a8057")
        self.assertEqual(name, "App\\Order")

    def test_a_message_without_an_id_has_no_record(self):
        self.db.rollback()
        for _ in range(2):
            self.assertTrue(inbox.handle(self.db, message(id=None), effect))
        self.assertEqual(len(ask(self.db, "SELECT order_id FROM effects")), 2)
        self.assertEqual(
            ask(self.db, "SELECT 1 FROM message_broker_deduplication"), [])

    def test_what_fails_leaves_nothing(self):
        def fail(connection, message):
            effect(connection, message)
            raise ValueError("no")

        def commit(connection, message):
            connection.cursor().execute("COMMIT")
        with self.assertRaises(ValueError):
            inbox.handle(self.db, message(), fail)
        self.assertEqual(ask(self.db, "SELECT order_id FROM effects"), [])
        self.assertEqual(
            ask(self.db, "SELECT 1 FROM message_broker_deduplication"), [])
        self.db.rollback()
        with self.assertRaises(Exception):
            inbox.handle(self.db, message(), commit)

    def test_a_body_that_did_not_run_has_handled_nothing(self):
        async def asynchronous(connection, message):
            effect(connection, message)

        def generator(connection, message):
            yield effect(connection, message)
        self.db.rollback()
        for function in asynchronous, generator:
            with self.assertRaisesRegex(skirnir.SkirnirError, "async def"):
                inbox.handle(self.db, message(), function)
            self.assertEqual(
                ask(self.db, "SELECT 1 FROM message_broker_deduplication"), [])
            self.db.rollback()

    def test_a_transaction_of_the_callers_is_refused(self):
        effect(self.db, None)
        with self.assertRaises(skirnir.SkirnirError):
            inbox.handle(self.db, message(), effect)
        self.db.rollback()

    def test_a_record_that_is_locked_is_waited_for(self):
        other = self.connect(False)
        self.addCleanup(other.close)
        self.addCleanup(other.rollback)

        def meanwhile(connection, message):
            with self.assertRaises(worker.Wait):
                inbox.handle(other, message, effect)
        inbox.handle(self.db, message(), meanwhile)


class TestSqlite(Common, unittest.TestCase):
    connect = staticmethod(connect_sqlite)
    seconds = "strftime('%s', available_at) - strftime('%s', created_at)"


class TestPostgresql(Common, unittest.TestCase):
    connect = staticmethod(connect_postgresql)
    seconds = "extract(epoch FROM available_at - created_at)"

    def test_an_asynchronous_connection_is_refused(self):
        import psycopg
        asynchronous = psycopg.AsyncConnection(self.db.pgconn)
        with self.assertRaisesRegex(skirnir.SkirnirError, "asynchronous"):
            inbox.handle(asynchronous, message(), effect)
        with self.assertRaisesRegex(skirnir.SkirnirError, "asynchronous"):
            skirnir.publish(asynchronous, "order.placed", {})

    def test_what_is_not_counted_is_not_taken_for_handled(self):
        self.db.rollback()
        with self.assertRaisesRegex(skirnir.SkirnirError, "pipeline"):
            with self.db.pipeline():
                inbox.handle(self.db, message(), effect)


class TestMariadb(Common, unittest.TestCase):
    connect = staticmethod(connect_mariadb)

    def test_after_a_deadlock_nothing_commits_by_itself(self):
        db = self.connect(True)
        self.addCleanup(db.close)

        def go_on(connection, message):
            connection.cursor().execute("ROLLBACK")  # as a deadlock does
            effect(connection, message)
        with self.assertRaises(Exception):
            inbox.handle(db, message(), go_on)
        self.assertEqual(ask(self.db, "SELECT order_id FROM effects"), [])
        self.assertTrue(inbox.handle(db, message(), effect))
        self.assertEqual(ask(db, "SELECT @@autocommit"), [(1,)])

    seconds = "TIMESTAMPDIFF(SECOND, created_at, available_at)"


class TestWorker(unittest.TestCase):
    def test_an_error_is_text(self):
        said = worker.failed("retry", ValueError("no \udcff"))
        self.assertEqual(said["error"], "no ?")

    def test_a_body_that_did_not_run_is_no_success(self):
        async def asynchronous(message):
            pass

        def generator(message):
            yield
        for function in asynchronous, generator:
            with self.assertRaisesRegex(skirnir.SkirnirError, "async def"):
                worker.run(function)
        for function in (asynchronous, generator,
                         lambda message: concurrent.futures.Future()):
            answer, is_usable = worker.call(
                lambda message: function(message), message())
            self.assertEqual((answer["verdict"], is_usable), ("retry", False))

    def test_dialogues(self):
        for vector in vectors("worker.json"):
            with self.subTest(vector["about"]):
                self.one_dialogue(vector)

    def one_dialogue(self, vector):
        with subprocess.Popen(
                [sys.executable, HERE / "worker.py",
                 json.dumps(vector["ready"].get("deduplicates", False))],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL, encoding="utf-8") as process:
            self.assertEqual(json.loads(process.stdout.readline()),
                             vector["ready"])
            for exchange in vector["dialogue"]:
                if exchange["in"] is None:
                    self.assertEqual(process.wait(30), 0)
                    return
                process.stdin.write(json.dumps(exchange["in"]) + "\n")
                process.stdin.flush()
                answer = json.loads(process.stdout.readline())
                if "error" not in exchange["out"]:
                    answer.pop("error", None)
                self.assertEqual(answer, exchange["out"])
            process.stdin.close()
            self.assertEqual(process.stdout.read(), "")
            self.assertEqual(process.wait(30), 0)


class TestIds(unittest.TestCase):
    def test_a_fork_holds_no_lock(self):
        with outbox._lock:
            child = os.fork()
            if child == 0:
                os._exit(0 if outbox._lock.acquire(timeout=5) else 1)
        self.assertEqual(os.waitpid(child, 0)[1], 0)

    def test_ids_ascend(self):
        ids = [outbox.new_id() for _ in range(5000)]
        self.assertEqual(ids, sorted(set(ids)))
        self.assertTrue(all(id[14] == "7" and id[19] in "89ab" for id in ids))


if __name__ == "__main__":
    unittest.main()
