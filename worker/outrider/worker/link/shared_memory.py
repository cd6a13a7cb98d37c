"""Link through shared memory: records in two rings, and a socket that wakes the end that sleeps.

Both ends are engines, each on its own thread; no other thread takes part. The socket carries
wake-ups alone, and ends with the process that has its other end. Leaves memory to `ring`, bytes of
messages to `draft_records`, and the way there to `meeting`.
"""

import contextlib
import os
import socket
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from outrider.worker.errors import LinkBroken, PeerLeft, ProtocolViolation
from outrider.worker.link.draft_records import FROM_DRAFT, FROM_TARGET
from outrider.worker.link.meeting import LinkMemory
from outrider.worker.link.rate_limit import (
    UNREAD_BYTES,
    TokenBucket,
    max_bytes_of_draft,
    max_bytes_of_target,
    max_unread_bytes,
)
from outrider.worker.link.records import RecordReader, RecordWriter
from outrider.worker.link.ring import Ring, RingEnd
from outrider.worker.messages import DirectLinkUp, FromPeer, Identity, LinkUp

WAKE = b"!"
BELL_BYTES = 4096


@dataclass(slots=True)
class SharedMemoryLink:
    """One end of a link, for the engine's thread alone; a method that raises has ended it.

    Raises `LinkBroken` if its bytes cannot be trusted, `ProtocolViolation` if the peer broke the
    rules, and `PeerLeft` if it has left; nothing but `close` may be called then.
    """

    link: int
    ring: Ring
    bell: socket.socket
    """Connected to the other end; does not block."""
    writer: RecordWriter
    reader: RecordReader
    token_bucket: TokenBucket
    max_unread: int
    """Bytes that may wait for room."""
    _unsent: bytearray = field(default_factory=bytearray)
    _looked_at: float = 0.0

    def send(self, messages: Sequence[Any]) -> None:
        """Write messages; keep what has no room, up to `max_unread` bytes; never wait."""
        records = self.writer.write(messages, time.monotonic())
        count = 0 if self._unsent else self.ring.write(records)
        if count < len(records):
            self._unsent += memoryview(records)[count:]
            self._write_unsent()
            if len(self._unsent) > self.max_unread:
                raise ProtocolViolation(f"more than {self.max_unread} bytes were left unread")
        self._ring_bell()

    def receive(self) -> list[FromPeer]:
        """Read what has come: messages that were written at once together, with that time."""
        if self._unsent:
            self._write_unsent()
        now, before = time.monotonic(), self._looked_at
        self._looked_at = now
        parts: list[FromPeer] = []
        together: list[Any] = []
        last = None
        for message, size, at in self.reader.read(self.ring.read()):
            self.token_bucket.spend_record(size, now)
            if at != last:
                together, last = [], at
                parts.append(FromPeer(self.link, together, min(now, max(before, at))))
            together.append(message)
        self._ring_bell()
        return parts

    def fall_asleep(self) -> bool:
        """Have the other end ring the bell; False if there is something to do already."""
        return self.ring.fall_asleep(has_more=bool(self._unsent))

    def awake(self, woken: bool) -> None:
        """End a sleep; a bell that is rung without end costs tokens, as messages do."""
        self.ring.awake()
        if not woken:
            return
        try:
            rung = self.bell.recv(BELL_BYTES)
        except BlockingIOError:
            return
        except OSError as error:
            raise PeerLeft(f"the peer is gone: {error.strerror}") from None
        if not rung:
            raise PeerLeft("the peer has left the shared memory")
        self.token_bucket.spend(len(rung), time.monotonic())

    def fileno(self) -> int:
        """Return the bell's descriptor."""
        return self.bell.fileno()

    def close(self) -> None:
        """Close the bell and unmap the memory: errors that have passed here may refer to this link
        for long."""
        self.bell.close()
        self.ring.close()

    def _write_unsent(self) -> None:
        with memoryview(self._unsent) as unsent:
            count = self.ring.write(unsent)
        del self._unsent[:count]

    def _ring_bell(self) -> None:
        """Wake the other end if it sleeps; one that is gone is noticed when this end sleeps."""
        if self.ring.must_wake:
            self.ring.must_wake = False
            with contextlib.suppress(OSError):
                self.bell.send(WAKE)


def direct_link(
    up: LinkUp,
    memory: LinkMemory,
    own: Identity,
    end_of: Callable[[int, int, socket.socket, Identity], SharedMemoryLink],
) -> DirectLinkUp:
    """Return the news of a link; raise `LinkBroken`, with its memory closed."""
    try:
        return DirectLinkUp(up, end_of(up.link, memory.descriptor, memory.bell, own))
    except LinkBroken:
        memory.bell.close()
        raise
    finally:
        os.close(memory.descriptor)


def target_end(link: int, descriptor: int, bell: socket.socket, own: Identity) -> SharedMemoryLink:
    """Return a target's end of a link, by its own limits."""
    return SharedMemoryLink(
        link,
        Ring(descriptor, RingEnd.TARGET),
        bell,
        RecordWriter(FROM_TARGET),
        RecordReader(FROM_DRAFT, max_bytes_of_draft(own.sessions)),
        TokenBucket.of_draft(time.monotonic(), own.sessions),
        max_unread_bytes(own.context, own.sessions),
    )


def draft_end(link: int, descriptor: int, bell: socket.socket, own: Identity) -> SharedMemoryLink:
    """Return a draft's end of a link, by its own limits."""
    return SharedMemoryLink(
        link,
        Ring(descriptor, RingEnd.DRAFT),
        bell,
        RecordWriter(FROM_DRAFT),
        RecordReader(FROM_TARGET, max_bytes_of_target(own.context)),
        TokenBucket.of_target(time.monotonic(), own.context, own.sessions),
        UNREAD_BYTES,
    )
