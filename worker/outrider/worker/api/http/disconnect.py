"""Cancellation of work whose client closes its connection."""

import asyncio
import contextlib
from collections.abc import Coroutine
from typing import Any, TypeVar

from starlette.types import Receive

Done = TypeVar("Done")


class ClientGone(Exception):
    """The connection was closed before the answer was ready."""


async def unless_gone(receive: Receive, work: Coroutine[Any, Any, Done]) -> Done:
    """Await `work`; raise `ClientGone` if the client of `receive`, whose body was read, leaves."""
    working = asyncio.create_task(work)
    leaving = asyncio.create_task(_disconnect(receive))
    try:
        await asyncio.wait((working, leaving), return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            raise ClientGone
        return working.result()
    finally:
        for task in (working, leaving):
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError, Exception):
                await task


async def _disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
