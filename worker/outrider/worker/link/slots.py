"""Slots: fixed pieces of a link's bytes, exchanged by two processes over torch.distributed.

The engine writes slots itself; a thread receives them, and rings a bell for an engine that sleeps:
gloo tells of an arrival only to a thread that waits for it. Each slot says how many of the other
side's were taken, so that neither has more than `WINDOW` on their way. Leaves records to `records`.
"""

import contextlib
import socket
import struct
import threading
import time
from collections import deque
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from outrider.worker.errors import LinkBroken, ProtocolViolation, WorkerError
from outrider.worker.link.process_pair import ProcessPair, Transfer

HEADER = struct.Struct("<II")
"""Bytes that follow; slots of the other side that were taken, modulo 2^32. Little-endian."""
SLOT_BYTES = 4096
"""Of each slot, with its header: growth of 20 sessions. What is longer takes several."""
DATA_BYTES = SLOT_BYTES - HEADER.size
WINDOW = 64
"""Slots with data that may be on their way: as many bytes as a ring of shared memory holds."""
SPARE = 8
"""More, that hold no data and only say what was taken."""
POSTED = 16
"""Receives that are posted ahead."""
NUMBERS = 1 << 32
WAKE = b"!"
BELL_BYTES = 4096


class Slot(NamedTuple):
    """What came in one slot."""

    data: bytearray
    arrived: float
    """`time.monotonic()`."""


class Slots:
    """One end of a link, for the engine's thread alone."""

    def __init__(self, pair: ProcessPair) -> None:
        """Raises `LinkBroken`, with the pair closed, where there is no thread or socket for it."""
        self._pair = pair
        self._buffers = [_buffer() for _ in range(WINDOW + SPARE)]
        self._sent = 0
        self._sending: deque[Transfer] = deque()
        """Slots that the other end has not taken yet, oldest first."""
        self._acknowledged = 0
        """Slots that it has taken, modulo 2^32."""
        self._taken = 0
        self._reported = 0
        """Of the slots that were taken here, those that it has heard of."""
        try:
            self._reader = SlotReader(pair)
        except (OSError, RuntimeError) as error:
            pair.close()
            raise LinkBroken(f"slots cannot be read: {error}") from None

    def write(self, data: bytes | memoryview) -> int:
        """Send as many bytes as have room, and return their number; raise `PeerLeft`."""
        count = 0
        while count < len(data) and len(self._sending) < WINDOW:
            count += self._send(data[count : count + DATA_BYTES])
        return count

    def take(self) -> list[Slot]:
        """Take all slots that have come.

        Raises why no more will come once all are taken; `LinkBroken` at once for a bad slot, with
        which those that came with it are lost.
        """
        return [self._opened(slot) for slot in self._reader.take()]

    def acknowledge(self) -> None:
        """Tell the other end what was taken, if it may wait for that; raise `PeerLeft`."""
        is_due = self._taken - self._reported >= WINDOW // 2
        if is_due and len(self._sending) < len(self._buffers):
            self._send(b"")

    def fall_asleep(self) -> bool:
        """Have the bell rung; False if something has come already."""
        return self._reader.fall_asleep()

    def awake(self, woken: bool) -> None:
        """End a sleep; `woken`: the bell was rung."""
        self._reader.awake(woken)

    def fileno(self) -> int:
        """Return the bell's descriptor."""
        return self._reader.bell.fileno()

    def close(self) -> None:
        """End the connections, and with them the thread."""
        self._pair.close()
        self._reader.close()

    def _send(self, data: bytes | memoryview) -> int:
        buffer = self._buffers[self._sent % len(self._buffers)]
        HEADER.pack_into(buffer.data, 0, len(data), self._taken % NUMBERS)
        buffer[HEADER.size : HEADER.size + len(data)] = np.frombuffer(data, np.uint8)
        self._sending.append(self._pair.send(buffer))
        self._sent += 1
        self._reported = self._taken
        return len(data)

    def _opened(self, slot: Slot) -> Slot:
        size, acknowledged = HEADER.unpack_from(slot.data)
        if size > DATA_BYTES:
            raise LinkBroken(f"a slot of {size} bytes; {DATA_BYTES} are allowed")
        count = (acknowledged - self._acknowledged) % NUMBERS
        if count > len(self._sending):
            raise LinkBroken(f"{count} slots were taken, of {len(self._sending)} on their way")
        for _ in range(count):
            self._sending.popleft()
        self._acknowledged = acknowledged
        self._taken += 1
        return Slot(slot.data[HEADER.size : HEADER.size + size], slot.arrived)


class SlotReader:
    """A thread that receives slots, and the bell that it rings."""

    def __init__(self, pair: ProcessPair) -> None:
        self._pair = pair
        self._arrived: deque[Slot] = deque()
        self._error: WorkerError | None = None
        """Why no more will come."""
        self._asleep = False
        self.bell, self._ringer = socket.socketpair()
        for end in (self.bell, self._ringer):
            end.setblocking(False)
        self._thread = threading.Thread(target=self._run, name="slots", daemon=True)
        self._thread.start()

    def take(self) -> list[Slot]:
        """Take what has come; raise the error that ended it once nothing is left."""
        error, slots = self._error, list[Slot]()
        while self._arrived:
            slots.append(self._arrived.popleft())
        if error is not None and not slots:
            raise error
        return slots

    def fall_asleep(self) -> bool:
        """Have the bell rung from now on; False if there is something to take."""
        self._asleep = True
        return not self._arrived and self._error is None

    def awake(self, woken: bool) -> None:
        """Take that back."""
        self._asleep = False
        if woken:
            with contextlib.suppress(BlockingIOError):
                self.bell.recv(BELL_BYTES)

    def close(self) -> None:
        """Close the bell; the thread, which ends with its connections, closes the other end."""
        self.bell.close()

    def _run(self) -> None:
        try:
            self._receive()
        except WorkerError as error:
            self._error = error
        self._ring()
        self._ringer.close()

    def _receive(self) -> None:
        posted = deque(self._pair.post(_buffer()) for _ in range(POSTED))
        while True:
            posted[0].wait()
            buffer = posted.popleft().array
            self._arrived.append(Slot(bytearray(buffer), time.monotonic()))
            self._ring()
            if len(self._arrived) > WINDOW + SPARE:
                raise ProtocolViolation(f"more than {WINDOW + SPARE} slots came unasked")
            posted.append(self._pair.post(buffer))

    def _ring(self) -> None:
        """Wake an engine that sleeps, once; it may have closed the bell."""
        if self._asleep:
            self._asleep = False
            with contextlib.suppress(OSError):
                self._ringer.send(WAKE)


def _buffer() -> NDArray[np.uint8]:
    return np.zeros(SLOT_BYTES, np.uint8)
