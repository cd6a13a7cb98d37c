"""Payloads of one direction between two parties, over torch.distributed: a group of two with gloo.

Stands in for a stream's messages where a group's leader names it; Hello, signs of life and reasons
stay on the stream. The two join on the threads that carry, once Hello has passed, so that nobody
waits for it: what is sent before is kept. Each payload follows its length. Leaves how two find each
other to `link.joining`. What a peer sends to gloo itself is believed, as of the ranks of one model
(docs/decisions/0018).
"""

import abc
import logging
import queue
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from outrider.worker.errors import LinkBroken, PeerLeft

if TYPE_CHECKING:
    from outrider.worker.link.process_pair import ProcessPair

logger = logging.getLogger(__name__)

MAX_BYTES = 1 << 26
"""Of one payload: 128 rows of 8192 numbers are 4 MiB, a prompt of 2^20 tokens too."""
UNREAD_BYTES = 1 << 28
"""That may wait for the other, as on a stream."""
REASON_SECONDS = 0.5
"""Longest that the stream has for saying why the other has left."""

Join = Callable[[], "ProcessPair"]


class PairThread(abc.ABC):
    """A thread that joins another party, then carries payloads until `close`."""

    def __init__(self, name: str, lost: Callable[[str], None]) -> None:
        """`lost` is called with the reason, on the thread, when the other is gone or never comes,
        unless `close` comes first."""
        self._name = name
        self._lost = lost
        self._lock = threading.Lock()
        self._closed = threading.Event()
        self._pair: ProcessPair | None = None

    def start(self, join: Join) -> None:
        """Join, on the thread: it may take as long as `join` does."""
        threading.Thread(target=self._run, args=(join,), name=self._name, daemon=True).start()

    def close(self) -> None:
        """End the connections, now or once they are there; what waits is dropped."""
        with self._lock:
            self._closed.set()
            pair = self._pair
        if pair is not None:
            pair.close()

    @abc.abstractmethod
    def _carry(self, pair: "ProcessPair") -> None:
        """Carry payloads for ever; raise `PeerLeft`."""

    def _run(self, join: Join) -> None:
        try:
            pair = join()
            if self._takes(pair):
                self._carry(pair)
        except PeerLeft as error:
            if not self._closed.wait(REASON_SECONDS):
                self._lost(str(error))
        except LinkBroken as error:
            if not self._closed.is_set():
                self._lost(str(error))
        except Exception as error:
            logger.exception("%s failed", self._name)
            self._lost(f"{self._name} failed: {type(error).__name__}: {error}")

    def _takes(self, pair: "ProcessPair") -> bool:
        """Keep a pair that has joined; close it if nobody wants it any more."""
        with self._lock:
            self._pair = pair
        if self._closed.is_set():
            pair.close()
        return not self._closed.is_set()


class PayloadSender(PairThread):
    """Sends payloads, in order."""

    def __init__(self, lost: Callable[[str], None]) -> None:
        super().__init__("payloads out", lost)
        self._waiting: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self.sent_bytes = 0
        self._gone_bytes = 0
        """Each changed by one thread alone."""

    def send(self, payload: bytes) -> None:
        """Queue a payload; the other is given up where too much waits for it."""
        self.sent_bytes += len(payload)
        if self.sent_bytes - self._gone_bytes > UNREAD_BYTES:
            self._lost(f"more than {UNREAD_BYTES} bytes were left unread")
        else:
            self._waiting.put(payload)

    def close(self) -> None:
        self._waiting.put(None)
        super().close()

    def _carry(self, pair: "ProcessPair") -> None:
        while (payload := self._waiting.get()) is not None:
            size = pair.send(np.array([len(payload)], np.int64))
            body = pair.send(np.frombuffer(bytearray(payload), np.uint8))  # writable, for torch
            size.wait()
            body.wait()
            self._gone_bytes += len(payload)


class PayloadReceiver(PairThread):
    """Receives payloads, in order."""

    def __init__(self, arrived: Callable[[bytes], None], lost: Callable[[str], None]) -> None:
        """`arrived` is called on the thread, with each."""
        super().__init__("payloads in", lost)
        self._arrived = arrived

    def _carry(self, pair: "ProcessPair") -> None:
        size = np.zeros(1, np.int64)
        while True:
            pair.post(size).wait()
            if not 0 < size[0] <= MAX_BYTES:
                raise LinkBroken(f"a payload of {size[0]} bytes; 1 to {MAX_BYTES} are allowed")
            payload = np.empty(int(size[0]), np.uint8)
            pair.post(payload).wait()
            self._arrived(payload.tobytes())
