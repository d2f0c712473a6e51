"""A TCP proxy between a client and a server that can fail like a network.

    with Proxy(server.port) as proxy:
        connect(proxy.url(server.url))
        proxy.hold()     # bytes wait and neither side is told
        proxy.resume()   # what waited passes
        proxy.swallow()  # packets of the open connections get lost, silently
        proxy.cut()      # every connection ends with a reset
        proxy.refuse()   # and new ones are refused
        proxy.accept()

Otherwise bytes pass as they come. What a method does is done when it returns.
"""
import array
import concurrent.futures
import ctypes
import fcntl
import os
import queue
import select
import socket
import struct
import termios
import threading

from . import ports

PIECE = 64 * 1024
# Closing then sends a reset: no end of stream, what is on its way is lost.
LINGER_NOT = struct.pack("ii", 1, 0)
SO_ATTACH_FILTER = 26
# A packet filter of one instruction: return 0, which drops the packet before
# anything of it is acknowledged.
DROP_ALL = ctypes.create_string_buffer(struct.pack("HBBI", 0x06, 0, 0, 0))
DROPPING = struct.pack("HL", 1, ctypes.addressof(DROP_ALL))


class _Flow:
    """One direction of a connection. What does not fit now stays in rest."""

    def __init__(self, source, sink, to_server):
        self.source, self.sink, self.to_server = source, sink, to_server
        self.rest = b""
        self.has_ended = False
        self.swallows = False

    def waiting(self):
        """Bytes that have come and not been passed on."""
        unread = array.array("i", [0])
        fcntl.ioctl(self.source, termios.FIONREAD, unread)
        return unread[0] + len(self.rest)

    def wants(self):
        """The socket to wait for and what for; None after the end."""
        if self.has_ended:
            return None
        return (self.sink, select.POLLOUT) if self.rest \
            else (self.source, select.POLLIN)

    def carry(self):
        try:
            if not self.rest:
                self.rest = self.source.recv(PIECE)
                if not self.rest:
                    self.has_ended = True
                    if not self.swallows:
                        self.sink.shutdown(socket.SHUT_WR)
                    return
            if self.swallows:
                self.rest = b""
                return
            self.rest = self.rest[self.sink.send(self.rest):]
        except BlockingIOError:
            pass


class Proxy:
    def __init__(self, target_port, target_host="127.0.0.1"):
        self.accepted = 0  # connections so far
        self._target = (target_host, target_port)
        self._port = ports.take()
        self._listener = None
        self._connections = []  # pairs of flows
        self._held = set()      # directions, by to_server
        # One thread has all the sockets; the others send it work.
        self._work = queue.SimpleQueue()
        self._wake_reader, self._wake_writer = os.pipe()
        self._is_open = True
        self._thread = threading.Thread(target=self._loop, daemon=True)
        self._thread.start()
        self.accept()

    @property
    def port(self):
        return self._port.number

    def url(self, url):
        """The same URL through the proxy."""
        return url.replace(f":{self._target[1]}", f":{self.port}")

    def hold(self, to_server=True, to_client=True):
        held = {True} if to_server else set()
        held |= {False} if to_client else set()
        self._do(lambda: self._held.update(held))

    def waiting(self, to_server):
        """Bytes that are being held in this direction."""
        return self._do(lambda: sum(
            flow.waiting() for connection in self._connections
            for flow in connection if flow.to_server == to_server))

    def swallow(self):
        """New connections are not concerned."""
        self._do(self._swallow)

    def resume(self):
        self._do(self._held.clear)

    def cut(self):
        self._do(self._cut)

    def refuse(self):
        self._do(self._stop_listening)
        self.cut()

    def accept(self):
        self._do(self._listen)

    def connections(self):
        """How many are open."""
        return self._do(lambda: len(self._connections))

    def close(self):
        if not self._is_open:
            return
        self.refuse()
        self._do(self._end)
        self._thread.join()
        os.close(self._wake_reader)
        os.close(self._wake_writer)
        self._port.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def _do(self, function):
        done = concurrent.futures.Future()
        self._work.put((function, done))
        os.write(self._wake_writer, b".")
        return done.result()

    # From here on all is the thread's.

    def _end(self):
        self._is_open = False

    def _listen(self):
        if self._listener is None:
            self._listener = socket.create_server(("127.0.0.1", self.port))

    def _stop_listening(self):
        if self._listener is not None:
            self._listener.close()
            self._listener = None

    def _cut(self):
        for connection in self._connections:
            self._reset(connection[0].source, connection[0].sink)
        self._connections = []

    def _swallow(self):
        for connection in self._connections:
            for flow in connection:
                flow.swallows = True
                flow.source.setsockopt(socket.SOL_SOCKET, SO_ATTACH_FILTER,
                                       DROPPING)

    def _loop(self):
        while self._is_open:
            poll = select.poll()
            poll.register(self._wake_reader, select.POLLIN)
            if self._listener is not None:
                poll.register(self._listener, select.POLLIN)
            self._register_flows(poll)
            ready = {number for number, _ in poll.poll()}
            if self._wake_reader in ready:
                self._do_work()
                continue  # the work may have changed everything
            if self._listener is not None and \
                    self._listener.fileno() in ready:
                self._take_connection()
            self._connections = [connection
                                 for connection in self._connections
                                 if self._serve(connection, ready)]

    def _register_flows(self, poll):
        wishes = {}
        for connection in self._connections:
            for flow in connection:
                wish = flow.wants()
                if wish is not None and flow.to_server not in self._held:
                    number = wish[0].fileno()
                    wishes[number] = wishes.get(number, 0) | wish[1]
        for number, events in wishes.items():
            poll.register(number, events)

    def _do_work(self):
        os.read(self._wake_reader, 1)
        function, done = self._work.get()
        try:
            done.set_result(function())
        except Exception as error:  # for the caller to see
            done.set_exception(error)

    def _take_connection(self):
        client, _ = self._listener.accept()
        try:
            server = socket.create_connection(self._target, 10)
        except OSError:
            self._reset(client)
            return
        for link in (client, server):
            link.setblocking(False)
            link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.accepted += 1
        self._connections.append((_Flow(client, server, True),
                                  _Flow(server, client, False)))

    def _serve(self, connection, ready):
        """False when the connection is over."""
        try:
            for flow in connection:
                wish = flow.wants()
                if wish is not None and wish[0].fileno() in ready and \
                        flow.to_server not in self._held:
                    flow.carry()
        except OSError:
            self._reset(flow.source, flow.sink)
            return False
        if all(flow.has_ended for flow in connection):
            flow.source.close()
            flow.sink.close()
            return False
        return True

    @staticmethod
    def _reset(*links):
        for link in links:
            link.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, LINGER_NOT)
            link.close()
