"""Rank group on GPUs: ranks load their shares, each on its device, and agree on blocks of KV.

A rank has as many blocks as the one with the least free memory. Leaves passes to
`gpu.parallel_model`, and processes to `outrider.worker.parallel`.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from outrider.worker.checkpoints.prepared import PreparedModel
from outrider.worker.gpu.device_group import DeviceGroup
from outrider.worker.gpu.device_share import DeviceShare
from outrider.worker.gpu.parallel_model import LeadingGpuModel, follow
from outrider.worker.gpu.shard import Terms, enough_memory, model_of
from outrider.worker.model.sharding import Shard
from outrider.worker.parallel.collectives import ProcessGroup
from outrider.worker.parallel.watchdog import Watchdog

MEBIBYTE = 1 << 20


@dataclass(frozen=True, slots=True)
class LeadingRanks:
    """The other ranks of rank 0, and what notices that one is gone."""

    group: ProcessGroup
    devices: DeviceGroup
    watchdog: Watchdog
    ended: Callable[[], None] = lambda: None
    """Called when the model is closed."""


def lead_on_device(
    prepared: PreparedModel,
    terms: Terms,
    blocks: Callable[[int], int],
    ranks: LeadingRanks,
    *,
    prefix_cache: bool = False,
) -> LeadingGpuModel:
    """Return the whole model, whose first share is this rank's; send `terms` to the others.

    `blocks` of KV of every rank, by the least bytes free on any rank's device. Raises `ModelError`
    and `GroupLost`.
    """
    group = ranks.group

    def agreed(free: int) -> int:
        with ranks.watchdog:
            count = blocks(least_free(group, free))
        group.broadcast(np.array([2, count], np.int32))
        return count

    group.broadcast(terms.encode())
    shard = Shard(prepared.config(), group.rank, group.size)
    model = model_of(prepared, shard, terms, agreed, ranks.devices, prefix_cache=prefix_cache)
    own = DeviceShare(model, ranks.devices)
    return LeadingGpuModel(prepared.config(), own, group, ranks.watchdog, ranks.ended)


def follow_on_device(
    prepared: PreparedModel,
    group: ProcessGroup,
    devices: DeviceGroup,
    ready: Callable[[], None] = lambda: None,
) -> None:
    """Load, call `ready`, then run passes until the leader says that it was the last.

    Raises `ModelError` and `GroupLost`.
    """

    def agreed(free: int) -> int:
        least_free(group, free)
        return int(group.receive()[1])

    terms = Terms.decode(group.receive())
    shard = Shard(prepared.config(), group.rank, group.size)
    with enough_memory(devices.device):
        share = DeviceShare(model_of(prepared, shard, terms, agreed, devices), devices)
    ready()
    follow(share, group)


def least_free(group: ProcessGroup, free: int) -> int:
    """Return the fewest bytes free on any rank's device, in whole MiB; all ranks ask together."""
    own = np.full((1, 1), free // MEBIBYTE, np.float32)  # exact up to 16 TiB
    return int(group.all_gather(own).min()) * MEBIBYTE
