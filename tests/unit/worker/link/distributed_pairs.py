"""Both ends of a link through torch.distributed, in one process."""

import contextlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import torch.distributed as dist

from outrider.worker.link import distributed
from outrider.worker.link.process_pair import ProcessPair
from tests.unit.worker.link.link_pairs import DRAFTS, IDENTITY, LONG_SECONDS, TARGETS


@contextlib.contextmanager
def joined_processes() -> Iterator[tuple[ProcessPair, ProcessPair]]:
    """Numbers 0 and 1 of a group."""
    store = dist.HashStore()
    with ThreadPoolExecutor(2) as pool:
        joining = [
            pool.submit(ProcessPair, store, number, "127.0.0.1", LONG_SECONDS)
            for number in range(2)
        ]
        first, second = (one.result(LONG_SECONDS) for one in joining)
    yield first, second
    first.close()
    second.close()


@contextlib.contextmanager
def distributed_pair(
    processes: tuple[ProcessPair, ProcessPair],
) -> Iterator[tuple[distributed.DistributedLink, distributed.DistributedLink]]:
    """The target's end and the draft's."""
    ends = (
        distributed.target_end(TARGETS, processes[0], IDENTITY),
        distributed.draft_end(DRAFTS, processes[1], IDENTITY),
    )
    yield ends
    for end in ends:
        end.close()
