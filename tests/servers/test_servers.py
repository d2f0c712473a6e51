"""The servers of the tests are real, private, and leave nothing behind."""
import os
import pathlib
import signal
import socket
import subprocess
import sys
import tempfile
import time

import pytest

import servers
import shop as shops
from servers import ports, processes

HERE = pathlib.Path(__file__).parent
WITH_SERVER = HERE / "with-server"
PATIENCE_S = 60


def eventually(condition):
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def write_row(server):
    server.query("CREATE TABLE t (a INTEGER)", database="skirnir")
    server.query("INSERT INTO t VALUES (42)", database="skirnir")


def read_row(server):
    return server.query("SELECT a FROM t", database="skirnir").strip()


def write_user(server):
    server.control("add_user", "alice", "secret")


def read_user(server):
    users = server.control("list_users").splitlines()
    return "42" if any(line.startswith("alice\t") for line in users) else ""


def write_record(server):
    server.produce("t", ["42"])


def read_record(server):
    return server.consume("t").strip()


KEEPING = {"kafka": (write_record, read_record),
           "mariadb": (write_row, read_row),
           "mysql": (write_row, read_row),
           "postgresql": (write_row, read_row),
           "rabbitmq": (write_user, read_user)}


def tls_greeting(server):
    """What openssl says of the server's certificate."""
    protocol = {"mariadb": ["-starttls", "mysql"],
                "mysql": ["-starttls", "mysql"],
                "postgresql": ["-starttls", "postgres"],
                "rabbitmq": [], "kafka": []}[server.name]
    port = server.port if protocol else server.port_of("tls")
    said = {}
    for authority in ("authority", "stranger"):
        said[authority] = subprocess.run(
            ["openssl", "s_client", "-connect", f"127.0.0.1:{port}",
             "-verify_ip", "127.0.0.1", "-CAfile",
             getattr(server.certificates, authority), *protocol],
            input=b"", capture_output=True, timeout=PATIENCE_S).stdout
    return said


@pytest.mark.parametrize("name", servers.KINDS)
def test_a_server_keeps_its_data_through_a_crash_and_leaves_nothing(name):
    write, read = KEEPING[name]
    server = servers.KINDS[name](tls=True)
    try:
        server.find_programs()
    except servers.NotInstalled:
        if name == "mysql":
            pytest.skip(servers.MYSQL_IS_MISSING)
        raise
    with server:
        folder, port, pid = server.folder, server.port, server.pid
        said = tls_greeting(server)
        assert b"Verification: OK" in said["authority"]
        assert b"Verification: OK" not in said["stranger"]
        write(server)

        server.kill()
        assert not pathlib.Path(f"/proc/{pid}").exists()
        assert processes.living_in(folder) == []
        assert ports.is_free(port)

        server.start()
        assert (server.port, server.folder) == (port, folder)
        assert server.pid != pid
        assert read(server) == "42"
        server.restart()
        assert read(server) == "42"
        assert server.log.stat().st_size > 0
        assert processes.living_in(folder) != []
    assert not server.is_running()
    assert not folder.exists()
    assert processes.living_in(folder) == []
    assert ports.is_free(port)


def test_copies_do_not_meet():
    with servers.Group("mariadb,postgresql,rabbitmq,"
                       "mariadb,postgresql,rabbitmq") as group:
        first, second = group.servers[:3], group.servers[3:]
        for one, other in zip(first, second):
            assert one.port != other.port
            assert one.folder != other.folder
            KEEPING[one.name][0](one)
        for one, other in zip(first, second):
            if one.name == "rabbitmq":
                assert KEEPING[one.name][1](other) == ""
            else:
                with pytest.raises(servers.ServerError):
                    KEEPING[one.name][1](other)
            other.close()
        for one in first:
            assert KEEPING[one.name][1](one) == "42"


def read_from_standby(pair):
    eventually(pair.standby.has_all)
    return read_row(pair.standby)


# By a node, and by another: what one has written another has.
CLUSTERS = {
    "Pair": (lambda pair: write_row(pair.primary), read_from_standby),
    "Galera": (lambda cluster: write_row(cluster.nodes[0]),
               lambda cluster: cluster.nodes[-1].query(
                   "SET wsrep_sync_wait = 1; SELECT a FROM t",
                   "skirnir").strip()),
    "RabbitMQCluster": (lambda cluster: write_user(cluster.nodes[0]),
                        lambda cluster: read_user(cluster.nodes[-1])),
    "KafkaCluster": (lambda cluster: write_record(cluster.nodes[0]),
                     lambda cluster: read_record(cluster.nodes[-1]))}


def start_cluster(name):
    """One that is ready to be entered."""
    cluster = getattr(servers, name)()
    try:
        cluster.nodes[0].find_programs()
    except servers.NotInstalled:
        if name == "Galera":
            pytest.skip("Galera is not installed here")
        raise
    return cluster


# The others take longer to start.
@pytest.mark.parametrize("name", CLUSTERS if shops.LONG else ["Pair"])
def test_a_cluster_is_one_and_comes_together_and_leaves_nothing(name):
    write, read = CLUSTERS[name]
    with start_cluster(name) as cluster:
        folders = [node.folder for node in cluster.nodes]
        places = [node.port for node in cluster.nodes]
        assert len(set(places)) == len(places)
        assert all(f":{port}" in cluster.url for port in places)
        cluster.mend()
        write(cluster)
        assert read(cluster) == "42"
        cluster.nodes[-1].kill()
        cluster.nodes[0].freeze()
        assert cluster.nodes[0].is_frozen
        cluster.mend()
        assert not cluster.nodes[0].is_frozen
        assert [node.port for node in cluster.nodes] == places
        assert read(cluster) == "42"
        # One that is frozen does not hold up the end.
        cluster.nodes[0].freeze()
    for folder, port in zip(folders, places):
        assert not folder.exists()
        assert processes.living_in(folder) == []
        assert ports.is_free(port)


def test_a_pair_changes_its_roles_and_keeps_what_was_committed():
    with servers.Pair() as pair:
        first, second = pair.nodes
        write_row(pair.primary)
        pair.fail_over()
        assert pair.primary is second
        assert read_row(second) == "42"
        second.query("INSERT INTO t VALUES (43)", database="skirnir")
        pair.rejoin()
        assert pair.standby is first
        assert read_from_standby(pair).split() == ["42", "43"]
        with pytest.raises(servers.ServerError, match="read-only"):
            first.query("INSERT INTO t VALUES (44)", database="skirnir")


def test_a_cluster_that_does_not_start_leaves_nothing():
    pair = servers.Pair()
    pair.standby.settings["no_such_setting"] = "1"
    with pytest.raises(servers.ServerError):
        pair.__enter__()
    for node in pair.nodes:
        assert not node.folder.exists()
        assert processes.living_in(node.folder) == []


def test_one_that_hangs_is_not_asked_for_ever():
    with servers.MariaDB() as server:
        with pytest.raises(servers.ServerError, match="longer than 1 s"):
            server.query("SELECT SLEEP(60)", limit_s=1)


def test_settings_reach_the_server():
    with servers.PostgreSQL(settings={"max_connections": 7}) as server:
        assert server.query("SHOW max_connections") == "7\n"


def test_durability_is_on():
    with servers.Group("mariadb,postgresql") as group:
        mariadb, postgresql = group.servers
        assert mariadb.query(
            "SELECT @@innodb_flush_log_at_trx_commit, @@innodb_doublewrite"
        ) == "1\t1\n"
        for setting in ("fsync", "synchronous_commit", "full_page_writes"):
            assert postgresql.query(f"SHOW {setting}") == "on\n"


def test_a_lost_race_for_a_port_is_run_again(monkeypatch):
    real_take = ports.take
    with socket.create_server(("127.0.0.1", 0)) as thief:
        lost = thief.getsockname()[1]
        takes = [lambda: ports.lock(lost)]
        monkeypatch.setattr(
            ports, "take",
            lambda: takes.pop()() if takes else real_take())
        with servers.PostgreSQL() as server:
            assert takes == []
            assert server.port != lost
            assert server.query("SELECT 1") == "1\n"


def test_a_locked_port_is_not_taken_twice():
    port = ports.take()
    assert ports.lock(port.number) is None
    port.close()
    again = ports.lock(port.number)
    assert again is not None
    again.close()


class Ghost(servers.Server):
    name, package, user = "ghost", "ghost-server", "ghost"

    def find_programs(self):
        self.find_program("ghostd")


def test_what_is_not_installed_is_named():
    with pytest.raises(servers.NotInstalled, match="install ghost-server"):
        Ghost().start()


def with_server(*arguments, **options):
    return subprocess.run([WITH_SERVER, *arguments], capture_output=True,
                          text=True, timeout=PATIENCE_S, **options)


def test_with_server_skips_when_a_server_is_not_installed():
    program = (
        "import runpy, sys; sys.path[:0] = sys.argv[1:]\n"
        "import servers\n"
        "from servers.test_servers import Ghost, WITH_SERVER\n"
        "servers.KINDS['ghost'] = Ghost\n"
        "sys.argv = ['with-server', 'ghost,postgresql', '--', 'true']\n"
        "runpy.run_path(str(WITH_SERVER), run_name='__main__')\n")
    result = subprocess.run(
        [sys.executable, "-c", program, HERE.parent,
         HERE.parent / "integration"], capture_output=True, text=True)
    assert result.returncode == 77
    assert result.stderr == ("with-server: ghostd is not installed: "
                             "apt-get install ghost-server\n")


def test_with_server_gives_its_command_the_addresses_and_its_exit_code():
    result = with_server(
        "postgresql", "--", "sh", "-c",
        'echo "$SKR_POSTGRESQL_URL $SKR_POSTGRESQL_PORT"; '
        'echo "$SKR_POSTGRESQL_FOLDER"; test -d "$SKR_POSTGRESQL_FOLDER" '
        '&& kill -0 "$SKR_POSTGRESQL_PID" && exit 3')
    assert result.returncode == 3
    address, folder = result.stdout.splitlines()
    url, port = address.split()
    assert url == f"pgsql://postgres@127.0.0.1:{port}/skirnir"
    assert not pathlib.Path(folder).exists()
    assert processes.living_in(folder) == []


@pytest.mark.parametrize("code, is_kept", [(0, False), (1, True)])
def test_with_server_keeps_the_folder_of_a_failure_when_asked(
        code, is_kept):
    result = with_server("--keep", "postgresql", "--", "sh", "-c",
                         f'echo "$SKR_POSTGRESQL_FOLDER"; exit {code}')
    folder = pathlib.Path(result.stdout.strip())
    assert result.returncode == code
    assert folder.exists() == is_kept
    assert (str(folder) in result.stderr) == is_kept
    assert processes.living_in(folder) == []
    if is_kept:
        assert (folder / "log").exists()
        subprocess.run(["rm", "-r", folder], check=True)


def test_with_server_reports_a_command_that_a_signal_killed():
    result = with_server("postgresql", "--", "sh", "-c", "kill -KILL $$")
    assert result.returncode == 128 + signal.SIGKILL


@pytest.mark.parametrize("name", ["TERM", "INT", "KILL"])
def test_nothing_outlives_a_launcher_that_is_told_to_end(name):
    number = getattr(signal, f"SIG{name}")
    launcher = subprocess.Popen(
        [WITH_SERVER, "mariadb,postgresql", "--", "sh", "-c",
         'echo "$$ $SKR_MARIADB_FOLDER $SKR_POSTGRESQL_FOLDER"; exec sleep 99'],
        stdout=subprocess.PIPE, text=True)
    command, *folders = launcher.stdout.readline().split()
    launcher.send_signal(number)
    code = launcher.wait(PATIENCE_S)
    if number == signal.SIGKILL:
        # The guards do it, soon; the command is on its own.
        os.kill(int(command), signal.SIGKILL)
        eventually(lambda: not any(map(os.path.exists, folders)))
    else:
        assert code == 128 + number
        assert not os.path.exists(f"/proc/{command}")
    launcher.stdout.close()
    for folder in folders:
        assert not os.path.exists(folder)
        assert processes.living_in(folder) == []


def test_a_signal_during_the_start_stops_it():
    # One that every user may search, unlike pytest's own.
    with tempfile.TemporaryDirectory() as parent:
        os.chmod(parent, 0o755)
        launcher = subprocess.Popen([WITH_SERVER, "mariadb", "--", "true"],
                                    env={**os.environ, "TMPDIR": parent})
        eventually(lambda: os.listdir(parent))
        launcher.terminate()
        assert launcher.wait(PATIENCE_S) == 128 + signal.SIGTERM
        assert os.listdir(parent) == []
