"""Collectives of the ranks of one model, over gloo and shared memory: all-reduce and the like.

Every sum is formed from all parts in rank order on every rank (docs/decisions/0008): a reduction
that adds on the way would give a row other bits at another place in the batch. A rank that is gone
makes the next collective fail at once. Leaves messages to `step_message`, ranks that are stuck to
`watchdog`.
"""

import contextlib
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray

from outrider.kernels.cpu.collectives import add_parts
from outrider.kernels.cpu.packing import aligned
from outrider.worker.errors import GroupLost
from outrider.worker.host import rendezvous
from outrider.worker.host.rendezvous import gloo
from outrider.worker.model.llama import Llama
from outrider.worker.model.rows import Rows
from outrider.worker.parallel.placement import LEADER
from outrider.worker.parallel.shared_memory import RankMemory

Floats = NDArray[np.float32]
Int32 = NDArray[np.int32]

FIRST = 512
"""Numbers of a message that travel first; most messages have no more."""
FOR_EVER = timedelta(days=365)
"""A follower waits for as long as the leader has no step."""
JOIN_SECONDS = 600
"""Longest that ranks wait for each other at start-up: some may have to fetch the model."""
WATCHED = 1
"""Tag of a message that never comes."""


class ProcessGroup:
    """This process among the ranks of a model."""

    def __init__(
        self, store: Any, rank: int, size: int, host: str, memory: RankMemory | None = None
    ) -> None:
        """Meet the others in `store`, one of torch's; raises `GroupLost` if they do not come.

        `host` is this rank's own address that the others can reach; `memory`: shared by all if they
        are on one machine.
        """
        self.rank = rank
        self.size = size
        self._memory = memory
        self._parts = np.empty(0, np.float32)
        try:
            self._gloo = gloo_group(store, rank, size, host)
        except RuntimeError as error:
            raise GroupLost(f"rank {rank} of {size} met no other: {error}") from error

    def broadcast(self, numbers: Int32) -> None:
        """Send to all followers, which are in `receive`; the first number is the length of all."""
        first = np.zeros(FIRST, np.int32)
        first[: len(numbers)] = numbers[:FIRST]
        self._broadcast(first)
        if len(numbers) > FIRST:
            self._broadcast(np.ascontiguousarray(numbers[FIRST:]))

    def receive(self) -> Int32:
        """Wait for the leader's next broadcast."""
        numbers = np.zeros(FIRST, np.int32)
        self._broadcast(numbers)
        length = int(numbers[0])
        if length <= FIRST:
            return numbers[:length]
        rest = np.zeros(length - FIRST, np.int32)
        self._broadcast(rest)
        return np.concatenate([numbers, rest])

    def run(self, model: Llama, rows: Rows, hidden: Floats | None = None) -> Floats:
        """Run a pass of this rank's share: its columns of the logits [outputs, padded].

        `hidden` and what a stage without head returns are as for `Llama.forward_shared`.
        """
        if self._memory is None:
            return model.forward_part(rows, self.all_reduce, hidden)
        return model.forward_shared(rows, self._memory.next(model.sums), hidden)

    def all_reduce(self, residual: Floats, part: Floats) -> None:
        """Add all ranks' `part` to `residual`, in rank order; both [rows, width], padded."""
        add_parts(residual, self.all_gather(part), len(part))

    def all_gather(self, part: Floats) -> Floats:
        """Gather all ranks' `part` [rows, width] as [ranks, rows, width], until the next call."""
        parts = self._room(self.size, *part.shape)
        _wait(lambda: self._gloo._allgather_base(_flat(parts), _flat(part)))
        return parts

    def gather(self, part: Floats) -> Floats | None:
        """Gather all ranks' `part` [rows, width] at the leader, [ranks, rows, width]; else None."""
        options = dist.GatherOptions()
        options.rootRank = LEADER
        if self.rank != LEADER:
            _wait(lambda: self._gloo.gather([], [_flat(part)], options))
            return None
        parts = self._room(self.size, *part.shape)
        _wait(lambda: self._gloo.gather([[_flat(p) for p in parts]], [_flat(part)], options))
        return parts

    def wait_until_gone(self, rank: int) -> None:
        """Block until the connection to `rank` has ended; for a thread that does nothing else."""
        with contextlib.suppress(RuntimeError):
            self._gloo.recv([torch.zeros(1)], rank, WATCHED).wait()

    def _broadcast(self, numbers: Int32) -> None:
        _wait(lambda: self._gloo.broadcast(torch.from_numpy(numbers), LEADER))

    def _room(self, *shape: int) -> Floats:
        """Return scratch memory, valid until the next call."""
        size = int(np.prod(shape))
        if len(self._parts) < size:
            self._parts = aligned((size,), np.float32)
        return self._parts[:size].reshape(shape)


def gloo_group(store: Any, rank: int, size: int, host: str) -> Any:
    """Return torch's gloo group; raises `RuntimeError` if the others do not come."""
    options = gloo._Options()
    options._devices = [gloo.create_device(hostname=host)]
    options._timeout = FOR_EVER
    options._threads = 1
    return gloo(store, rank, size, options)


def join_store(host: str, port: int, size: int) -> Any:
    """Wait for the leader's store; raises `GroupLost`."""
    try:
        return rendezvous.join_store(host, port, size, JOIN_SECONDS)
    except RuntimeError as error:
        raise GroupLost(f"no leader at {host}:{port}: {error}") from error


def _flat(array: Floats) -> torch.Tensor:
    return torch.from_numpy(array.reshape(-1))


def _wait(begin: Callable[[], torch.distributed.Work]) -> None:
    """Run one collective; raises `GroupLost`."""
    try:
        begin().wait()
    except RuntimeError as error:
        raise GroupLost(f"a rank is gone: {error}") from error
