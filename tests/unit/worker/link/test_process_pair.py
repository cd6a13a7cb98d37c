"""Two processes in torch.distributed: bytes both ways by gloo, and the choice of NCCL."""

import contextlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import pytest
import torch
import torch.distributed as dist

from outrider.worker.errors import LinkBroken, PeerLeft
from outrider.worker.link.process_pair import Backend, ProcessPair, end_nccl, own_gpu

SECONDS = 20.0


@contextlib.contextmanager
def pairs(gpus: tuple[str, str] = ("", ""), **more: Any) -> Iterator[list[ProcessPair]]:
    """Numbers 0 and 1, in one process."""
    store = dist.HashStore()

    def meet(number: int) -> ProcessPair:
        return ProcessPair(store, number, "127.0.0.1", SECONDS, gpus[number], **more)

    with ThreadPoolExecutor(2) as pool:
        both = list(pool.map(meet, range(2)))
    yield both
    for pair in both:
        pair.close()


def test_bytes_go_both_ways_at_once_and_in_order() -> None:
    large = bytes(range(256)) * 10_000
    with pairs() as both, ThreadPoolExecutor(4) as pool:
        for pair in both:
            pool.submit(lambda pair=pair: [pair.send(payload) for payload in (b"a", large, b"bc")])
        found = [
            pool.submit(lambda pair=pair: [pair.receive(size) for size in (1, len(large), 2)])
            for pair in both
        ]
        for one in found:
            assert one.result(SECONDS) == [b"a", large, b"bc"]


@pytest.mark.parametrize("closes", [0, 1])
def test_a_side_that_closes_ends_every_wait(closes: int) -> None:
    with pairs() as both, ThreadPoolExecutor(2) as pool:
        waiting = [pool.submit(pair.receive, 5) for pair in both]
        both[closes].close()
        for one in waiting:
            with pytest.raises(PeerLeft):
                one.result(SECONDS)
        with pytest.raises(PeerLeft):
            both[1 - closes].send(b"to nobody")


def test_one_that_nobody_joins_is_no_pair() -> None:
    store = dist.HashStore()
    store.set_timeout(timedelta(milliseconds=50))
    with pytest.raises(LinkBroken, match=r"no group of torch\.distributed came up"):
        ProcessPair(store, 0, "127.0.0.1", 0.05)


class FakeGroup:
    """One way of a fake NCCL: what is sent in it lies in a list."""

    def __init__(self, sent: list[torch.Tensor]) -> None:
        self._sent = sent
        self.aborted = False

    def send(self, tensors: list[torch.Tensor], to: int, tag: int) -> "FakeGroup":
        self._sent += [tensor.clone() for tensor in tensors]
        return self

    def recv(self, tensors: list[torch.Tensor], source: int, tag: int) -> "FakeGroup":
        tensors[0].copy_(self._sent.pop(0))
        return self

    def wait(self, longest: Any) -> None:
        if self.aborted:
            raise RuntimeError("[somewhere.cpp:1] NCCL communicator was aborted. More words")

    def abort(self) -> None:
        self.aborted = True


@pytest.mark.parametrize(
    ("gpus", "by_nccl"),
    [(("", ""), False), (("a", ""), False), (("a", "a"), False), (("a", "b"), True)],
)
def test_nccl_carries_bytes_between_two_gpus_a_way_in_each_group(
    gpus: tuple[str, str], by_nccl: bool
) -> None:
    ways: tuple[list[torch.Tensor], list[torch.Tensor]] = ([], [])
    asked: list[bool] = []

    def backend(nccl: bool) -> Backend:
        def open_fakes(*_: Any) -> tuple[FakeGroup, FakeGroup]:
            asked.append(nccl)
            return FakeGroup(ways[0]), FakeGroup(ways[1])

        return Backend(open_fakes, "cpu", end_nccl)

    backends = {nccl: backend(nccl) for nccl in (False, True)}
    with pairs(gpus, backends=backends) as (first, second):
        assert asked == 2 * [by_nccl]
        first.send(b"there")
        second.send(b"and back")
        assert [len(way[0]) for way in ways] == [5, 8]
        assert second.receive(5) == b"there"
        assert first.receive(8) == b"and back"
        first.close()
        with pytest.raises(PeerLeft, match=r"^NCCL communicator was aborted$"):
            first.send(b"more")


def test_a_process_that_computes_on_no_gpu_has_none() -> None:
    assert own_gpu() == ""
