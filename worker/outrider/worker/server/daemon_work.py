"""Work on a daemon thread: a process that is to end does not wait for it, whatever it does."""

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

from outrider.worker.errors import Stopping

T = TypeVar("T")


async def unless_stopped(work: Callable[[], T], name: str, stop: asyncio.Event) -> T:
    """Return what work on a thread of its own returns; raise `Stopping` once `stop` is set."""
    future: Future[T] = Future()
    future.set_running_or_notify_cancel()

    def run() -> None:
        try:
            future.set_result(work())
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=run, name=name, daemon=True).start()
    working = asyncio.wrap_future(future)
    stopping = asyncio.create_task(stop.wait())
    try:
        await asyncio.wait((working, stopping), return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            raise Stopping("this worker is to stop before it has started")
        return working.result()
    finally:
        working.cancel()
        stopping.cancel()
