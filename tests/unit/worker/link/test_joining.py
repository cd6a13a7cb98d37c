"""Joining of a target and a draft: both in time, or none; what comes too late is closed."""

import asyncio
import threading

import pytest

from outrider.protos.v1 import drafter_pb2 as pb
from outrider.worker.errors import LinkBroken
from outrider.worker.link import joining
from outrider.worker.link.joining import Joining, join, open_rendezvous

LONG_SECONDS = 20.0


class Pair:
    """What a `join` returns."""

    def __init__(self) -> None:
        self.closed = threading.Event()

    def close(self) -> None:
        self.closed.set()


def test_a_target_and_a_draft_join_by_what_the_offer_says() -> None:
    async def both() -> None:
        rendezvous = open_rendezvous("127.0.0.1:50052")
        offer = pb.Rendezvous.FromString(rendezvous.offer().SerializeToString())
        assert offer.host == "127.0.0.1"
        pairs = await asyncio.gather(
            Joining().run(rendezvous.join), Joining().run(lambda: join(offer))
        )
        for pair in pairs:
            pair.close()

    asyncio.run(both())


def test_two_links_of_one_target_join_apart() -> None:
    first, second = (open_rendezvous("127.0.0.1:50052") for _ in range(2))
    assert first.port != second.port
    assert first.prefix != second.prefix


@pytest.mark.parametrize(
    "offer",
    [
        pb.Rendezvous(host="127.0.0.1", port=0),
        pb.Rendezvous(host="127.0.0.1", port=2**32 - 1),
        pb.Rendezvous(host="no such host", port=1),
        pb.Rendezvous(),
    ],
)
def test_an_offer_of_nowhere_breaks_the_link(offer: pb.Rendezvous) -> None:
    with pytest.raises(LinkBroken, match="cannot be joined"):
        asyncio.run(Joining().run(lambda: join(offer)))


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
