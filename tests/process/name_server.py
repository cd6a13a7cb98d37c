"""A DNS server for tests: answers every question for an IPv4 address with the same ones."""

import contextlib
import socket
import struct
import threading
from collections.abc import Iterator, Sequence

IPV4 = 1


def answer(question: bytes, addresses: Sequence[str]) -> bytes:
    """The reply (RFC 1035 §4) to a message with one question; empty but for IPv4."""
    end = question.index(b"\0", 12) + 5
    kind = struct.unpack("!H", question[end - 4 : end - 2])[0]
    found = addresses if kind == IPV4 else ()
    head = question[:2] + struct.pack("!5H", 0x8580, 1, len(found), 0, 0)
    records = b"".join(
        struct.pack("!3HIH", 0xC00C, IPV4, 1, 0, 4) + socket.inet_aton(one) for one in found
    )
    return head + question[12:end] + records


@contextlib.contextmanager
def name_server(*addresses: str) -> Iterator[str]:
    """Serves on loopback; yields its host:port."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as server:
        server.bind(("127.0.0.1", 0))

        def serve() -> None:
            while (asked := server.recvfrom(512))[0] != b"end":
                server.sendto(answer(asked[0], addresses), asked[1])

        thread = threading.Thread(target=serve, name="names", daemon=True)
        thread.start()
        host, port = server.getsockname()
        try:
            yield f"{host}:{port}"
        finally:
            server.sendto(b"end", (host, port))
            thread.join()
