"""Ways to add a half layer's product of all ranks to the residual, and which of them a group takes.

Every way adds in the order of ranks, in float32, rounded once, so a row's bits do not depend on its
place (docs/decisions/0008); which way never changes the text. Leaves the sums to
`outrider.kernels.gpu`, and who the ranks are to `ranks`.
"""

import enum
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

from outrider.kernels.gpu.all_reduce import Mailboxes, all_reduce, symmetric
from outrider.kernels.gpu.linear import linear
from outrider.kernels.gpu.linear_sum import linear_sum
from outrider.kernels.gpu.meeting import Meeting, meeting, words
from outrider.kernels.gpu.rank_sum import rank_sum
from outrider.kernels.gpu.sampling_inputs import Gather
from outrider.kernels.gpu.tiles import TileScratch
from outrider.kernels.gpu.tiling import Tiling
from outrider.kernels.gpu.weights import Weights
from outrider.worker.errors import GroupLost


class AllReduceKind(enum.StrEnum):
    """How ranks add up; `gathered` unless told otherwise."""

    GATHERED = "gathered"
    """The library gathers all parts (NCCL, or gloo of CPU tensors), a kernel adds them."""
    ONE_SHOT = "one-shot"
    """Flag words in symmetric memory, one launch. Not yet seen on two GPUs."""
    FUSED = "fused"
    """The same as the end of the product's own launch. Not yet seen on two GPUs."""


class AllReduce(Protocol):
    """What ends a half layer."""

    def finish(
        self, x: Tensor, weights: Weights, part: Tensor, residual: Tensor, scratch: TileScratch
    ) -> Tensor | None:
        """Adds x @ W.T of all ranks to the residual, or returns what the next norm is to add.

        x: [rows, inputs]; part: scratch, residual: [rows, outputs].
        """

    def add(self, part: Tensor, residual: Tensor) -> None:
        """residual += the sum of all ranks' part; both [rows, width]."""


class Alone:
    """One rank: the next norm adds the product, in its own launch."""

    def finish(
        self, x: Tensor, weights: Weights, part: Tensor, residual: Tensor, scratch: TileScratch
    ) -> Tensor | None:
        """The product."""
        linear(x, weights, part, scratch)
        return part

    def add(self, part: Tensor, residual: Tensor) -> None:
        """residual += part."""
        residual.add_(part)


class Apart(AllReduce):
    """The product in its own launch, then the sum."""

    def finish(
        self, x: Tensor, weights: Weights, part: Tensor, residual: Tensor, scratch: TileScratch
    ) -> Tensor | None:
        """Product, then what `add` does."""
        linear(x, weights, part, scratch)
        self.add(part, residual)
        return None


@dataclass(frozen=True, slots=True)
class Gathered(Apart):
    """All parts are gathered, then added."""

    gather: Gather

    def add(self, part: Tensor, residual: Tensor) -> None:
        """Gather, sum."""
        rank_sum(self.gather(part), residual)


@dataclass(frozen=True, slots=True)
class OneShot(Apart):
    """Parts go to all ranks as flag words."""

    mailboxes: Mailboxes

    def add(self, part: Tensor, residual: Tensor) -> None:
        """Exchange and sum."""
        all_reduce(part, residual, residual, self.mailboxes)


@dataclass(frozen=True, slots=True)
class Fused:
    """Products go to all ranks as flag words; what is no product is added `otherwise`."""

    where: Meeting
    otherwise: AllReduce

    def finish(
        self, x: Tensor, weights: Weights, part: Tensor, residual: Tensor, scratch: TileScratch
    ) -> Tensor | None:
        """One launch."""
        linear_sum(x, weights, residual, residual, scratch, self.where)
        return None

    def add(self, part: Tensor, residual: Tensor) -> None:
        """As `otherwise` does."""
        self.otherwise.add(part, residual)


def gather_over(group: Any) -> Gather:
    """The ranks' tensors side by side, by one of torch's process groups.

    On a GPU nobody waits, so that a graph can hold it. Raises `GroupLost`.
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


def reducing_over(
    way: AllReduceKind,
    group: Any,
    rows: int,
    hidden: int,
    plans: Sequence[Tiling],
    like: Tensor,
    mailboxes: Callable[[int, torch.device, Any], Mailboxes] = symmetric,
) -> AllReduce:
    """For passes of up to `rows` rows; `like`: an activation; `plans` of layers that end halves.

    Raises `ValueError` for flag words between tensors that are on no GPU: they need symmetric
    memory, which `mailboxes` makes.
    """
    gathered = Gathered(gather_over(group))
    if way is AllReduceKind.GATHERED:
        return gathered
    if mailboxes is symmetric and not like.is_cuda:
        raise ValueError(
            f"way: {way} is not allowed on {like.device}; allowed: {AllReduceKind.GATHERED}"
        )
    if way is AllReduceKind.ONE_SHOT:
        numbers = rows * hidden * like.itemsize
        return OneShot(mailboxes(-(-numbers // 4), like.device, group))
    most = max(words(rows, cut, like.dtype) for cut in plans)
    return Fused(meeting(mailboxes(most, like.device, group)), gathered)
