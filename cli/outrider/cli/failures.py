"""Errors that end a command, each with its exit status.

    Failure              something went wrong on the way       exit status 1
    ├── BadInput         the user can mend it                  exit status 2
    └── WorkerFailed     a worker stopped or never got ready   exit status 1

Messages are one or two sentences for people; `app` prints them without a traceback.
"""

import contextlib
import signal
import sys
from pathlib import Path
from typing import NoReturn

INTERRUPTED = 128 + signal.SIGINT
"""Exit status after a Ctrl-C."""


class Failure(Exception):
    """Something went wrong on the way."""

    status = 1


class BadInput(Failure):
    """A file, an option or a prompt that the user can mend."""

    status = 2


class Interrupted(Exception):
    """The work was cancelled by a signal."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.status = 128 + number


class WorkerFailed(Failure):
    """A worker stopped before it was ready; the message ends with the last lines of its log."""

    def __init__(self, name: str, status: int, log: Path) -> None:
        last = "\n".join(f"  {line}" for line in last_lines(log, 12))
        super().__init__(
            f"{name} {ending(status)} before it was ready; its log {log} ends:\n{last}"
        )
        self.exit_status = status


def stop() -> NoReturn:
    """End the command after a Ctrl-C that nothing else answered, with one line."""
    with contextlib.suppress(OSError):  # nobody reads it any more
        print("outrider: stopped", file=sys.stderr, flush=True)
    sys.exit(INTERRUPTED)


def ending(status: int) -> str:
    """Say how a process ended; a negative status is the signal that killed it."""
    return f"was killed by signal {-status}" if status < 0 else f"stopped with status {status}"


def last_lines(log: Path, count: int) -> list[str]:
    """The last lines of a log, without empty ones."""
    lines = log.read_text(errors="replace").splitlines() if log.exists() else []
    return [line for line in lines if line.strip()][-count:] or ["(nothing)"]
