"""All-reduce: ways to add a half layer's product of all ranks to the residual, chosen by a setting.

Every way adds in the order of ranks, in float32, rounded once, so a row's bits do not depend on its
place (docs/decisions/0008); which way never changes the text. Leaves the sums to
`outrider.kernels.gpu`, and who the ranks are to `device_group`.
"""

import abc
from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor

from outrider.contract.settings import AllReduceKind
from outrider.kernels.gpu.all_reduce import Mailboxes, all_reduce, symmetric
from outrider.kernels.gpu.linear import linear
from outrider.kernels.gpu.linear_sum import linear_sum
from outrider.kernels.gpu.meeting import SumMeeting, meeting, words
from outrider.kernels.gpu.rank_sum import rank_sum
from outrider.kernels.gpu.sampling_inputs import Gather
from outrider.kernels.gpu.tiles import TileScratch
from outrider.kernels.gpu.tiling import plan
from outrider.kernels.gpu.weights import Weights
from outrider.worker.errors import ModelError
from outrider.worker.gpu.device_group import DeviceGroup, prefix_store
from outrider.worker.gpu.weights import DeviceWeights

MakeMailboxes = Callable[[int, DeviceGroup], Mailboxes]
"""Mailboxes of so many words, in memory that all ranks of a group can write to."""


class AllReduce(abc.ABC):
    """The end of a half layer: the product in its own launch, then the sum."""

    def finish(
        self, x: Tensor, weights: Weights, part: Tensor, residual: Tensor, scratch: TileScratch
    ) -> Tensor | None:
        """Add x @ W.T of all ranks to the residual, or return what the next norm is to add.

        x: [rows, inputs]; part: scratch, residual: [rows, outputs].
        """
        linear(x, weights, part, scratch)
        return self.add_up(part, residual)

    def add_up(self, part: Tensor, residual: Tensor) -> Tensor | None:
        """Do what `finish` does behind the product; part, residual: [rows, outputs]."""
        self.add(part, residual)
        return None

    @abc.abstractmethod
    def add(self, part: Tensor, residual: Tensor) -> None:
        """residual += the sum of all ranks' part; both [rows, width]."""


class NoReduce(AllReduce):
    """One rank: the next norm adds the product, in its own launch."""

    def add_up(self, part: Tensor, residual: Tensor) -> Tensor | None:
        """Return the product."""
        return part

    def add(self, part: Tensor, residual: Tensor) -> None:
        """residual += part."""
        residual.add_(part)


@dataclass(frozen=True, slots=True)
class GatherReduce(AllReduce):
    """The library gathers all parts (NCCL, or gloo of CPU tensors), a kernel adds them."""

    gather: Gather

    def add(self, part: Tensor, residual: Tensor) -> None:
        """residual += the gathered parts."""
        rank_sum(self.gather(part), residual)


@dataclass(frozen=True, slots=True)
class OneShotReduce(AllReduce):
    """Parts go to all ranks as flag words, and are added in the same launch."""

    mailboxes: Mailboxes

    def add(self, part: Tensor, residual: Tensor) -> None:
        """residual += the exchanged parts."""
        all_reduce(part, residual, residual, self.mailboxes)


@dataclass(frozen=True, slots=True)
class FusedReduce(AllReduce):
    """Products go to all ranks as flag words, in the product's own launch.

    What is no product is added by `other`.
    """

    where: SumMeeting
    other: AllReduce

    def finish(
        self, x: Tensor, weights: Weights, part: Tensor, residual: Tensor, scratch: TileScratch
    ) -> Tensor | None:
        """Run product and sum in one launch."""
        linear_sum(x, weights, residual, residual, scratch, self.where)
        return None

    def add(self, part: Tensor, residual: Tensor) -> None:
        """Add as `other` does."""
        self.other.add(part, residual)


def all_reduce_of(
    kind: AllReduceKind,
    group: DeviceGroup,
    weights: DeviceWeights,
    rows: int,
    make_mailboxes: MakeMailboxes | None = None,
) -> AllReduce | None:
    """Return the all-reduce of a rank's passes of up to `rows` rows; None where there is one rank.

    `weights`: this rank's share. All ranks call it together. `make_mailboxes`: None, in symmetric
    memory. Raises `ModelError` where the devices have none, and `GroupLost`.
    """
    if group.size == 1:
        return None
    gathered = GatherReduce(group.gather)
    if kind is AllReduceKind.GATHER:
        return gathered
    make_mailboxes = make_mailboxes or symmetric_mailboxes
    like = weights.embedding
    if kind is AllReduceKind.ONE_SHOT:
        size = rows * like.shape[1] * like.itemsize
        return OneShotReduce(make_mailboxes(-(-size // 4), group))
    cuts = {plan(one) for layer in weights.layers for one in (layer.output, layer.down)}
    needed = max(words(rows, cut, like.dtype) for cut in cuts)
    return FusedReduce(meeting(make_mailboxes(needed, group)), gathered)


def symmetric_mailboxes(needed: int, group: DeviceGroup) -> Mailboxes:
    """Return mailboxes of `needed` words in memory that the ranks' GPUs map from each other.

    torch exchanges addresses over its default group, which this process has for that alone. Raises
    `ModelError` where the GPUs cannot.
    """
    store = prefix_store("mailboxes", group.store)
    try:
        dist.init_process_group("nccl", store=store, rank=group.rank, world_size=group.size)
        assert dist.group.WORLD is not None
        return symmetric(needed, torch.device(group.device), dist.group.WORLD, group.barrier)
    except RuntimeError as error:
        raise ModelError(
            f"settings.all_reduce: {AllReduceKind.ONE_SHOT} and {AllReduceKind.FUSED} are not "
            f"allowed here, the ranks' GPUs cannot map each other's memory: {error}; allowed: "
            f"{AllReduceKind.GATHER}"
        ) from error
