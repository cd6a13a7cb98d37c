"""Messages for an engine from other threads of its process.

Any thread puts, the engine's drains; a pipe wakes an engine that sleeps. Between processes that is
`channel`'s work.
"""

import contextlib
import os
from collections import deque
from typing import Any

WAKE = b"!"
PIPE_BYTES = 1 << 16


class Inbox:
    """A queue with a file descriptor that is readable while something is in it."""

    def __init__(self) -> None:
        self._messages: deque[Any] = deque()
        self._reader, self._writer = os.pipe()
        os.set_blocking(self._reader, False)
        os.set_blocking(self._writer, False)

    def put(self, message: Any) -> None:
        """Adds a message and wakes the engine."""
        self._messages.append(message)
        with contextlib.suppress(BlockingIOError):  # so full that it is readable anyway
            os.write(self._writer, WAKE)

    def drain(self) -> list[Any]:
        """Every message so far, oldest first."""
        with contextlib.suppress(BlockingIOError):  # nobody has woken us
            os.read(self._reader, PIPE_BYTES)
        messages = []
        while self._messages:
            messages.append(self._messages.popleft())
        return messages

    def fileno(self) -> int:
        """What to poll."""
        return self._reader

    def close(self) -> None:
        """Frees the pipe."""
        os.close(self._reader)
        os.close(self._writer)
