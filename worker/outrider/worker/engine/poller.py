"""Poller: sleeps until a descriptor is readable, or for a time that may be far below a millisecond.

`select.poll` and epoll round times up to whole milliseconds, a quarter of a pass of the demo's
target; `select.select` takes no descriptor beyond 1023. So this calls ppoll of the C library, and
`select.poll` where there is none (macOS).
"""

import ctypes
import math
import select


class PollFd(ctypes.Structure):
    """One descriptor, as poll(2) has it."""

    _fields_ = (("fd", ctypes.c_int), ("events", ctypes.c_short), ("revents", ctypes.c_short))


class Timespec(ctypes.Structure):
    """A time."""

    _fields_ = (("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long))


class Poller:
    """The descriptors that one thread waits for."""

    def __init__(self) -> None:
        self._descriptors: list[int] = []
        self._array = (PollFd * 0)()
        self._ppoll = getattr(ctypes.CDLL(None), "ppoll", None)

    def register(self, descriptor: int) -> None:
        """Wait for a descriptor too."""
        self._watch([*self._descriptors, descriptor])

    def unregister(self, descriptor: int) -> None:
        """Wait for it no longer."""
        self._watch([one for one in self._descriptors if one != descriptor])

    def poll(self, seconds: float | None) -> set[int]:
        """Return the descriptors that are readable or closed; none after so long, or a signal."""
        if self._ppoll is None:
            return self._poll_milliseconds(seconds)
        for one in self._array:
            one.revents = 0
        time = None if seconds is None else ctypes.byref(timespec(seconds))
        self._ppoll(self._array, ctypes.c_ulong(len(self._array)), time, None)
        return {one.fd for one in self._array if one.revents}

    def _poll_milliseconds(self, seconds: float | None) -> set[int]:
        readable = select.poll()
        for descriptor in self._descriptors:
            readable.register(descriptor, select.POLLIN)
        found = readable.poll(None if seconds is None else max(0.0, 1e3 * seconds))
        return {descriptor for descriptor, _ in found}

    def _watch(self, descriptors: list[int]) -> None:
        self._descriptors = descriptors
        watched = (PollFd(descriptor, select.POLLIN, 0) for descriptor in descriptors)
        self._array = (PollFd * len(descriptors))(*watched)


def timespec(seconds: float) -> Timespec:
    """Convert a time, at least zero."""
    fraction, whole = math.modf(max(0.0, seconds))
    return Timespec(int(whole), int(1e9 * fraction))
