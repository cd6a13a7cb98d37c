"""Memory that a target and a draft share: a ring of bytes each way, and who of them sleeps.

One end writes a ring, the other reads it; each keeps its own place in its own memory. Words and
bytes in shared memory may be anything at any time: places are checked, and bytes are copied, before
they are used. Leaves records to `records`, and the file to `memory_file`.
"""

import enum
import mmap

import numpy as np

from outrider.kernels.cpu import shared_words
from outrider.worker.errors import LinkBroken
from outrider.worker.link.memory_file import FILE_BYTES, HEAD_BYTES, RING_BYTES

LINE = 16
"""Words between two that are written by different processes: two cache lines."""
FOR_BYTES, FOR_ROOM = 1, 2
"""Words of an end that sleeps until bytes come, and of one that also has some to write; else 0."""


class RingEnd(enum.IntEnum):
    """End of shared memory; its number is that of the ring that it writes."""

    TARGET = 0
    DRAFT = 1

    @property
    def other(self) -> "RingEnd":
        return RingEnd(1 - self)


WRITTEN, READ, ASLEEP = 1, 2, 3
"""Words of an end: all bytes that it has written, all that it has read, and how it sleeps."""


def word_of(which: int, end: RingEnd) -> int:
    """Return the index of a word of an end."""
    return LINE * (which + 3 * end)


class Ring:
    """One end's view of both rings."""

    def __init__(self, descriptor: int, end: RingEnd) -> None:
        """Map a file that `memory_file.check` let pass; the descriptor may then be closed.

        Raises `LinkBroken` where it cannot be mapped.
        """
        try:
            self._map = mmap.mmap(descriptor, FILE_BYTES)
        except OSError as error:
            raise LinkBroken(f"shared memory cannot be mapped: {error.strerror}") from None
        self._words = np.frombuffer(self._map, np.int64, HEAD_BYTES // 8)
        self._out = self._bytes_of(end)
        self._in = self._bytes_of(end.other)
        self._end = end
        self._written = 0
        self._read = 0
        self._peer_read = 0
        """All bytes that the other end has read, as last seen."""
        self.must_wake = False
        """True once the other end is to be woken; the caller does, and sets it to False."""

    def close(self) -> None:
        """Unmap the memory; nothing else may be called then."""
        self._words = np.empty(0, np.int64)
        self._out.release()
        self._in.release()
        self._map.close()

    def write(self, data: bytes | memoryview) -> int:
        """Copy as many bytes as have room, and return their number; raise `LinkBroken`."""
        count = min(len(data), self._room(len(data)))
        if count == 0:
            return 0
        start = self._written % RING_BYTES
        first = min(count, RING_BYTES - start)
        self._out[start : start + first] = data[:first]
        if first < count:
            self._out[: count - first] = data[first:count]
        self._written += count
        self._publish(word_of(WRITTEN, self._end), self._written, FOR_BYTES)
        return count

    def read(self) -> bytearray:
        """Copy all bytes that have come; raise `LinkBroken`."""
        count = self._coming(shared_words.load(self._words, word_of(WRITTEN, self._end.other)))
        if count == 0:
            return bytearray()
        start = self._read % RING_BYTES
        data = bytearray(self._in[start : start + count])
        if len(data) < count:
            data += self._in[: count - len(data)]
        self._read += count
        self._publish(word_of(READ, self._end), self._read, FOR_ROOM)
        return data

    def fall_asleep(self, has_more: bool) -> bool:
        """Ask to be woken when bytes come and, if there is more to write, when it has room.

        Returns False if that is so already. Raises `LinkBroken`.
        """
        sleep = FOR_ROOM if has_more else FOR_BYTES
        written = word_of(WRITTEN, self._end.other)
        asleep = word_of(ASLEEP, self._end)
        if self._coming(shared_words.fall_asleep(self._words, asleep, sleep, written)) > 0:
            return False
        return not has_more or self._room(1) == 0

    def awake(self) -> None:
        """Take that back."""
        shared_words.store(self._words, word_of(ASLEEP, self._end), 0)

    def _bytes_of(self, end: RingEnd) -> memoryview:
        """Return the ring that an end writes."""
        start = HEAD_BYTES + end * RING_BYTES
        with memoryview(self._map) as everything:
            return everything[start : start + RING_BYTES]

    def _publish(self, word: int, value: int, least: int) -> None:
        """Set a word; have the other end woken if it sleeps like this."""
        if shared_words.publish(self._words, word, value, word_of(ASLEEP, self._end.other), least):
            self.must_wake = True

    def _room(self, wanted: int) -> int:
        """Return the bytes that have room; looks up the other end's place only if it matters."""
        if self._peer_read + RING_BYTES - self._written < wanted:
            read = shared_words.load(self._words, word_of(READ, self._end.other))
            if not self._peer_read <= read <= self._written:
                raise LinkBroken(f"{read} bytes were read, of {self._written}")
            self._peer_read = read
        return self._peer_read + RING_BYTES - self._written

    def _coming(self, written: int) -> int:
        """Return the bytes that have come, by the other end's place."""
        if not self._read <= written <= self._read + RING_BYTES:
            raise LinkBroken(f"{written} bytes were written, and {self._read} of them read")
        return written - self._read
