"""Several streams as one, each item with the number of the stream that it came from.

Ends all streams when one fails or when nobody reads on.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from typing import TypeVar

Item = TypeVar("Item")


async def merged(streams: Sequence[AsyncIterator[Item]]) -> AsyncGenerator[tuple[int, Item], None]:
    """Items as they come; raises what a stream raises."""
    queue: asyncio.Queue[tuple[int, Item] | Exception | None] = asyncio.Queue()
    tasks = [asyncio.create_task(_pour(i, stream, queue)) for i, stream in enumerate(streams)]
    open_streams = len(tasks)
    try:
        while open_streams:
            item = await queue.get()
            if item is None:
                open_streams -= 1
            elif isinstance(item, Exception):
                raise item
            else:
                yield item
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _pour(
    index: int,
    stream: AsyncIterator[Item],
    queue: "asyncio.Queue[tuple[int, Item] | Exception | None]",
) -> None:
    try:
        async for item in stream:
            queue.put_nowait((index, item))
    except Exception as error:  # not handled here: handed to whoever reads
        queue.put_nowait(error)
    else:
        queue.put_nowait(None)
