"""A service that runs in a thread beside a chat, and ends with it.

What is served, and how, is `local`'s.
"""

import asyncio
import contextlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from queue import SimpleQueue

from outrider.cli.local.service import placed
from outrider.cli.workers.supervisor import StartOptions
from outrider.operator.spec import SpeculativeService

Addresses = tuple[str, ...]


@contextlib.contextmanager
def served(service: SpeculativeService, start: StartOptions) -> Iterator[Addresses]:
    """Serve, and yield the addresses of the targets; all workers have ended after the block.

    Raises `Failure` if the service does not start, or has failed meanwhile.
    """
    loop, ready = asyncio.new_event_loop(), SimpleQueue[Addresses]()
    serving = loop.create_task(_serve(service, start, ready))
    serving.add_done_callback(lambda _: ready.put(()))
    with ThreadPoolExecutor(1) as thread:
        done = thread.submit(_run, loop, serving)
        try:
            if addresses := ready.get():
                yield addresses
        finally:
            if not done.done():
                loop.call_soon_threadsafe(serving.cancel)
            with contextlib.suppress(asyncio.CancelledError):
                done.result()


async def _serve(
    service: SpeculativeService, start: StartOptions, ready: SimpleQueue[Addresses]
) -> None:
    async with placed(service, start) as (local, hand):
        if local.choice is not None:
            local.choice.tell(start.progress.note)

        async def work() -> None:
            await hand.tell_paths()
            ready.put(hand.addresses)
            await asyncio.Event().wait()

        await hand.run(work)


def _run(loop: asyncio.AbstractEventLoop, task: "asyncio.Task[None]") -> None:
    try:
        loop.run_until_complete(task)
    finally:
        loop.run_until_complete(loop.shutdown_default_executor())
        loop.close()
