"""Ctrl-C and SIGTERM as one orderly end of an asyncio program.

The first signal cancels the work, whose clean-up stops the workers; a second one ends this process
at once, and the workers with it, as they watch for its end.
"""

import asyncio
import os
import signal
import sys
from collections.abc import Coroutine
from typing import Any, TypeVar

from outrider.cli.failures import Interrupted

Done = TypeVar("Done")


def run(work: Coroutine[Any, Any, Done]) -> Done:
    """Run `work` in a new event loop; raises `Interrupted` if a signal ended it."""
    return asyncio.run(_guarded(work))


async def _guarded(work: Coroutine[Any, Any, Done]) -> Done:
    task = asyncio.ensure_future(work)
    received: list[int] = []

    def receive(number: int) -> None:
        if received:
            os._exit(128 + number)
        received.append(number)
        task.cancel()  # first: nobody may read what is printed
        print("Stopping; press Ctrl-C again to force.", file=sys.stderr, flush=True)

    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, receive, number)
    try:
        return await task
    except asyncio.CancelledError:
        if received:
            raise Interrupted(received[0]) from None
        raise
