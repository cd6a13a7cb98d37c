"""Device group: the ranks of one model that have a device each, as one of them reaches the others.

Tensors travel over NCCL, or over gloo where they are the CPU's. Leaves step messages, which travel
between hosts, to `outrider.worker.parallel`.
"""

from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from outrider.kernels.gpu.sampling_inputs import Gather, alone
from outrider.worker.errors import GroupLost
from outrider.worker.parallel.collectives import gloo_group

prefix_store: Any = dist.PrefixStore  # type: ignore[attr-defined] # named by a star import


@dataclass(frozen=True, slots=True)
class DeviceGroup:
    """One rank's place in the group; by default the only one."""

    device: str
    """This rank's own, as torch calls it."""
    rank: int = 0
    size: int = 1
    gather: Gather = alone
    """Over all ranks' devices."""
    store: Any = None
    """Where ranks exchange addresses; None: there is one rank."""

    def barrier(self) -> None:
        """Wait until every rank has come here and its device has run what was launched before.

        Raises `GroupLost`.
        """
        self.gather(torch.zeros(1, device=self.device)).cpu()


def join_device_group(store: Any, rank: int, size: int, device: str, host: str) -> DeviceGroup:
    """Return the group once all ranks are there; `host` is this rank's own address.

    NCCL connects when it is first used, and takes memory then: before KV gets what is left. Raises
    `GroupLost` if the others do not come.
    """
    gather = gather_over(backend(prefix_store("devices", store), rank, size, device, host))
    group = DeviceGroup(device, rank, size, gather, store)
    group.barrier()
    return group


def backend(store: Any, rank: int, size: int, device: str, host: str) -> Any:
    """Return torch's NCCL or gloo group; raises `GroupLost` if the others do not come."""
    try:
        if device.startswith("cuda"):
            torch.cuda.set_device(device)
            nccl: Any = dist.ProcessGroupNCCL
            return nccl(store, rank, size, nccl.Options())
        return gloo_group(store, rank, size, host)
    except RuntimeError as error:
        raise GroupLost(f"rank {rank} of {size} met no other rank: {error}") from error


def gather_over(group: Any) -> Gather:
    """Return the all-gather of one of torch's groups.

    On a GPU the host does not wait for it, so that a graph can hold it. It raises `GroupLost`.
    """
    ranks = group.size()

    def gather(own: Tensor) -> Tensor:
        flat = own.contiguous().view(-1)
        parts = flat.new_empty(ranks * flat.numel())
        try:
            group._allgather_base(parts, flat).wait()
        except RuntimeError as error:
            raise GroupLost(f"a rank is gone: {error}") from error
        return parts.view(ranks, *own.shape)

    return gather
