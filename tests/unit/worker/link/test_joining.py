"""Joining of a target and a draft: what comes too late is closed, what fails breaks the link."""

import asyncio
import threading

import pytest

from outrider.worker.errors import LinkBroken
from outrider.worker.link import joining
from outrider.worker.link.joining import Joining

LONG_SECONDS = 20.0


class Pair:
    """What a `join` returns."""

    def __init__(self) -> None:
        self.closed = threading.Event()

    def close(self) -> None:
        self.closed.set()


def test_what_comes_too_late_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(joining, "SECONDS", 0.01)
    pair, may_end = Pair(), threading.Event()

    def join_late() -> Pair:
        may_end.wait(LONG_SECONDS)
        return pair

    async def run() -> None:
        links = Joining()
        with pytest.raises(LinkBroken, match="the other side did not join within"):
            await links.run(join_late)  # type: ignore[arg-type]
        assert links.count == 1
        may_end.set()
        async with asyncio.timeout(LONG_SECONDS):
            while links.count:
                await asyncio.sleep(0)
        assert pair.closed.is_set()

    asyncio.run(run())


def test_only_so_many_join_at_once() -> None:
    may_end = threading.Event()

    def join_later() -> Pair:
        may_end.wait(LONG_SECONDS)
        return Pair()

    async def run() -> None:
        links = Joining()
        waiting = [
            asyncio.create_task(links.run(join_later))  # type: ignore[arg-type]
            for _ in range(joining.MAX_JOINING)
        ]
        await asyncio.sleep(0)
        with pytest.raises(LinkBroken, match="other links are joining"):
            await links.run(join_later)  # type: ignore[arg-type]
        may_end.set()
        await asyncio.gather(*waiting)
        assert links.count == 0

    asyncio.run(run())


def test_an_error_that_nobody_expects_breaks_the_link_alone() -> None:
    def fail() -> Pair:
        raise ValueError("an odd one")

    with pytest.raises(LinkBroken, match="joining failed: ValueError: an odd one"):
        asyncio.run(Joining().run(fail))  # type: ignore[arg-type]
