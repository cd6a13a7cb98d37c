"""Ranks with a device each come together: they meet, load their shares and agree on blocks of KV.

A rank has as many blocks as the one with the least free memory. Leaves passes to `ranks`, and
processes to `outrider.worker.ranks`.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from outrider.kernels.gpu.sampling_inputs import Gather
from outrider.worker.gpu.all_reduce import gather_over
from outrider.worker.gpu.parallel_model import DeviceShare, LeadingGpuModel, device_group, follow
from outrider.worker.gpu.shard import Terms, model_of
from outrider.worker.model.prepared import PreparedModel
from outrider.worker.model.sharding import Shard
from outrider.worker.parallel.collectives import ProcessGroup
from outrider.worker.parallel.watchdog import Watchdog

MEBIBYTE = 1 << 20


def gather_between(store: Any, rank: int, size: int, device: str, host: str) -> Gather:
    """Over all ranks' devices, once all are there; as `device_group` otherwise.

    NCCL connects when it is first used, and takes memory then: before KV gets what is left.
    """
    gather = gather_over(device_group(store, rank, size, device, host))
    gather(torch.zeros(1, device=device)).cpu()
    return gather


def lead_on_device(
    prepared: PreparedModel,
    terms: Terms,
    blocks: Callable[[int], int],
    group: ProcessGroup,
    gather: Gather,
    device: str,
    deadline: Watchdog,
    *,
    prefix_cache: bool = False,
    ended: Callable[[], None] = lambda: None,
) -> LeadingGpuModel:
    """The whole model, of which this rank holds the first share; the others are told the `terms`.

    `blocks` of KV of every rank, by the least bytes free on any rank's device. Raises `ModelError`
    and `GroupLost`.
    """

    def agreed(free: int) -> int:
        with deadline:
            count = blocks(least(group, free))
        group.tell(np.array([2, count], np.int32))
        return count

    group.tell(terms.encode())
    shard = Shard(prepared.config(), group.rank, group.size)
    model = model_of(
        prepared, shard, terms, agreed, device, gather=gather, prefix_cache=prefix_cache
    )
    own = DeviceShare(model, group.rank, gather)
    return LeadingGpuModel(prepared.config(), own, group, deadline, ended)


def follow_on_device(
    prepared: PreparedModel,
    group: ProcessGroup,
    gather: Gather,
    device: str,
    ready: Callable[[], None] = lambda: None,
) -> None:
    """Loads, calls `ready`, then runs passes until the leader says that it was the last.

    Raises `ModelError` and `GroupLost`.
    """

    def agreed(free: int) -> int:
        least(group, free)
        return int(group.hear()[1])

    terms = Terms.decode(group.hear())
    shard = Shard(prepared.config(), group.rank, group.size)
    model = model_of(prepared, shard, terms, agreed, device, gather=gather)
    share = DeviceShare(model, group.rank, gather)
    ready()
    follow(share, group)


def least(group: ProcessGroup, free: int) -> int:
    """The fewest bytes free on any rank's device, in whole MiB; all ranks ask together."""
    own = np.full((1, 1), free // MEBIBYTE, np.float32)  # exact up to 16 TiB
    return int(group.gather_all(own).min()) * MEBIBYTE
