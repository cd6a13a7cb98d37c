"""The tests' own proxy, where it is partitioned or corrupts."""

import contextlib
import socket
import threading
from collections.abc import Iterator

import pytest

from tests.process.proxy import Proxy


@pytest.fixture
def echo() -> Iterator[str]:
    """Address of a server that sends back what it gets, one connection after the other."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            while True:
                try:
                    connection, _ = server.accept()
                except OSError:
                    return
                with connection, contextlib.suppress(ConnectionError):
                    while data := connection.recv(9):
                        connection.sendall(data)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        host, port = server.getsockname()
        yield f"{host}:{port}"
        server.shutdown(socket.SHUT_RDWR)
    thread.join()


def connected(proxy: Proxy) -> socket.socket:
    """A connection through the proxy."""
    host, _, port = proxy.address.rpartition(":")
    return socket.create_connection((host, int(port)))


def said(connection: socket.socket) -> bytes:
    """What comes back for a word; nothing where the connection is reset."""
    try:
        connection.sendall(b"word")
        return connection.recv(9)
    except ConnectionError:
        return b""


def test_a_partition_ends_connections_and_takes_none_until_it_heals(echo: str) -> None:
    with Proxy(echo) as proxy:
        with connected(proxy) as before:
            assert said(before) == b"word"
            proxy.partition()
            with contextlib.suppress(ConnectionError):
                assert before.recv(9) == b""
        with connected(proxy) as during:
            assert said(during) == b""
        proxy.heal()
        with connected(proxy) as after:
            assert said(after) == b"word"


def test_a_corrupt_proxy_turns_a_bit_of_each_piece_until_it_is_told_to_stop(echo: str) -> None:
    with Proxy(echo) as proxy, connected(proxy) as connection:
        proxy.corrupt = 1.0
        turned = said(connection)
        assert len(turned) == len(b"word")
        assert turned != b"word"
        proxy.corrupt = 0.0
        assert said(connection) == b"word"
