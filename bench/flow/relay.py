"""Shaped links on loopback: a token bucket and a delay between two parties that speak TCP.

A process of its own: `python -m bench.flow.relay BITS_PER_SECOND DELAY FROM=TO...` forwards from
each port, which may be reserved, to another one. It prints a line once it listens, and ends with
its input. Each direction of each connection is a link, under the rule that the simulation's obey.
"""

import contextlib
import queue
import socket
import sys
import threading
import time
from collections.abc import Sequence

from bench.flow.setting import Links
from bench.flow.token_bucket import TokenBucket

READ_BYTES = 1 << 16


class ShapedLink:
    """One direction of one connection."""

    def __init__(self, source: socket.socket, sink: socket.socket, links: Links) -> None:
        self._source = source
        self._sink = sink
        self._bucket = TokenBucket(links.bits_per_second)
        self._delay = links.delay
        self._waiting: queue.SimpleQueue[tuple[float, bytes]] = queue.SimpleQueue()
        """When each piece arrives; an empty one is the end."""
        self.ended = threading.Event()
        """Set once nothing more is carried."""

    def start(self) -> None:
        """Carry until the source ends."""
        for work in (self._read, self._write):
            threading.Thread(target=work, daemon=True).start()

    def _read(self) -> None:
        data = b"-"
        while data:
            with contextlib.suppress(OSError):
                data = b""
                data = self._source.recv(READ_BYTES)
            leaves = self._bucket.leaves(time.monotonic(), len(data))
            self._waiting.put((leaves + self._delay, data))

    def _write(self) -> None:
        with contextlib.suppress(OSError):
            while (piece := self._waiting.get())[1]:
                time.sleep(max(0.0, piece[0] - time.monotonic()))
                self._sink.sendall(piece[1])
            self._sink.shutdown(socket.SHUT_WR)
        self.ended.set()


def forward(listener: socket.socket, port: int, links: Links) -> None:
    """Join each connection that comes to one to a port, until the listener is shut down."""
    while True:
        try:
            near, _ = listener.accept()
        except OSError:
            return
        try:
            far = socket.create_connection(("127.0.0.1", port))
        except OSError:
            near.close()
            continue
        for end in (near, far):
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        both = [ShapedLink(*ends, links) for ends in ((near, far), (far, near))]
        for one in both:
            one.start()
        threading.Thread(target=close_after, args=(both, (near, far)), daemon=True).start()


def close_after(both: Sequence[ShapedLink], ends: Sequence[socket.socket]) -> None:
    """Close two sockets once both directions between them have ended."""
    for one in both:
        one.ended.wait()
    for end in ends:
        end.close()


def main(arguments: list[str]) -> None:
    """Forward until the input ends."""
    links = Links(float(arguments[0]), float(arguments[1]))
    for pair in arguments[2:]:
        here, there = map(int, pair.split("="))
        listener = socket.create_server(("127.0.0.1", here), reuse_port=True)
        threading.Thread(target=forward, args=(listener, there, links), daemon=True).start()
    print("listening", flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main(sys.argv[1:])
