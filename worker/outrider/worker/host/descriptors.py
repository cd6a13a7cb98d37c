"""File descriptors of this process: as many as it may have, and a word where they run out."""

import asyncio
import logging
import resource
import sys
from typing import Any

logger = logging.getLogger(__name__)

SAID_SECONDS = 60.0
"""Least time between two lines that say so."""
RUN_OUT = "out of system resource"
"""In what asyncio says where it cannot accept a connection, once for each that waits."""


def take_all_descriptors() -> None:
    """Raise the limit of open files to the one that nobody but root may exceed: each connection
    takes one, and shells leave 1,024."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    except (ValueError, OSError) as error:  # macOS has a limit of its own below
        logger.info("the limit of open files stays %d: %s", most_descriptors(), error)


def most_descriptors() -> int:
    """Return how many files this process may have open."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return sys.maxsize if soft == resource.RLIM_INFINITY else soft


class AcceptErrors:
    """A loop's handler of exceptions that says once a minute that no connection can be accepted."""

    def __init__(self) -> None:
        self._next = 0.0

    def __call__(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Take what the loop reports."""
        if RUN_OUT not in context.get("message", ""):
            loop.default_exception_handler(context)
        elif loop.time() >= self._next:
            self._next = loop.time() + SAID_SECONDS
            logger.error(
                "no connection can be accepted: %s; at most %d files may be open",
                context.get("exception"),
                most_descriptors(),
            )
