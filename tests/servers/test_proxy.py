"""The proxy passes everything on until it is told to fail."""
import os
import socket
import threading
import time

import pytest

import servers


@pytest.fixture
def echo():
    """A server that sends back what it gets; also what it has got so far."""
    got = []

    def answer(link):
        with link:
            try:
                while piece := link.recv(65536):
                    got.append(piece)
                    link.sendall(piece)
            except OSError:
                pass

    def accept():
        while True:
            try:
                link, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=answer, args=(link,), daemon=True).start()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=accept, daemon=True).start()
        yield listener.getsockname()[1], got
        listener.shutdown(socket.SHUT_RDWR)


@pytest.fixture
def proxy(echo):
    with servers.Proxy(echo[0]) as opened:
        yield opened


def connect(proxy):
    return socket.create_connection(("127.0.0.1", proxy.port), 20)


def read(link, size):
    data = b""
    while len(data) < size:
        piece = link.recv(size - len(data))
        assert piece, f"ended after {len(data)} bytes"
        data += piece
    return data


def eventually(condition):
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def is_silent(link):
    """Whether nothing comes within a moment."""
    link.settimeout(0.2)
    try:
        link.recv(1)
        return False
    except TimeoutError:
        return True
    finally:
        link.settimeout(20)


def test_bytes_pass_both_ways_and_so_does_the_end(proxy):
    data = os.urandom(8 << 20)
    with connect(proxy) as link:
        # More than all buffers hold: neither side may wait for the other.
        sender = threading.Thread(
            target=lambda: (link.sendall(data),
                            link.shutdown(socket.SHUT_WR)))
        sender.start()
        assert read(link, len(data)) == data
        assert link.recv(1) == b""
        sender.join()
    assert proxy.accepted == 1
    assert proxy.connections() == 0


def test_a_cut_resets_every_connection_and_new_ones_pass(proxy):
    with connect(proxy) as one, connect(proxy) as other:
        for link in (one, other):
            link.sendall(b"x")
            assert read(link, 1) == b"x"
        assert proxy.connections() == 2
        proxy.cut()
        for link in (one, other):
            with pytest.raises(ConnectionResetError):
                link.recv(1)
    with connect(proxy) as link:
        link.sendall(b"y")
        assert read(link, 1) == b"y"


def test_held_bytes_pass_after_resume(proxy):
    with connect(proxy) as link:
        link.sendall(b"a")
        assert read(link, 1) == b"a"
        proxy.hold()
        link.sendall(b"b")
        assert is_silent(link)
        proxy.resume()
        assert read(link, 1) == b"b"


def test_an_answer_alone_can_be_held_and_lost(proxy, echo):
    with connect(proxy) as link:
        link.sendall(b"a")
        assert read(link, 1) == b"a"
        proxy.hold(to_server=False)
        link.sendall(b"b")
        eventually(lambda: echo[1] == [b"a", b"b"])
        assert is_silent(link)
        proxy.cut()
        with pytest.raises(ConnectionResetError):
            link.recv(1)


def test_a_refusing_proxy_comes_back_on_its_port(proxy):
    port = proxy.port
    proxy.refuse()
    with pytest.raises(ConnectionRefusedError):
        connect(proxy)
    proxy.accept()
    assert proxy.port == port
    with connect(proxy) as link:
        link.sendall(b"c")
        assert read(link, 1) == b"c"


def test_a_server_that_is_down_looks_like_it():
    dead = servers.ports.take()
    with servers.Proxy(dead.number) as proxy:
        # It may come so early that connecting itself ends with it.
        with pytest.raises(ConnectionResetError):
            with connect(proxy) as link:
                link.recv(1)
    dead.close()


def test_a_database_client_notices_the_cut():
    with servers.PostgreSQL() as server, servers.Proxy(server.port) as proxy:
        url = proxy.url(server.url)
        assert url == f"pgsql://postgres@127.0.0.1:{proxy.port}/skirnir"
        psql = ["psql", "-XAt", "-h", "127.0.0.1", "-p", proxy.port,
                "-U", "postgres", "-d", "skirnir", "-c"]
        assert server.call([*psql, "SELECT 1"]).stdout == "1\n"
        result = []
        client = threading.Thread(target=lambda: result.append(server.call(
            [*psql, "SELECT pg_sleep(60)"], is_checked=False)))
        client.start()
        eventually(lambda: "pg_sleep" in server.query(
            "SELECT query FROM pg_stat_activity "
            "WHERE pid <> pg_backend_pid()"))
        proxy.cut()
        client.join(30)
        assert result and result[0].returncode == 2


def test_what_is_held_is_counted(proxy):
    with connect(proxy) as link:
        proxy.hold(to_client=False)
        link.sendall(b"12345")
        eventually(lambda: proxy.waiting(to_server=True) == 5)
        proxy.resume()
        assert read(link, 5) == b"12345"
        assert proxy.waiting(to_server=True) == 0


def test_swallowing_tells_nobody_and_spares_new_connections(proxy, echo):
    with connect(proxy) as link, connect(proxy) as other:
        for each in (link, other):
            each.sendall(b"hello")
            assert read(each, 5) == b"hello"
        proxy.swallow()
        link.sendall(b"lost")
        with connect(proxy) as fresh:
            fresh.sendall(b"found")
            assert read(fresh, 5) == b"found"
        assert b"lost" not in b"".join(echo[1])
        other.close()
        link.settimeout(0.2)
        with pytest.raises(TimeoutError):
            link.recv(1)
