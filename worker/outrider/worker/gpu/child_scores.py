"""How the children of a draft's rows are ranked on the device: settings staged, kernels launched.

Leaves which rows they are to `draft` and `chain`, the ranking to
`outrider.kernels.gpu.top_children`.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from outrider.kernels.gpu.child_inputs import Guessing, mask_out, scale_of
from outrider.kernels.gpu.sampling_inputs import SamplingInputs
from outrider.kernels.gpu.top_children import rank_children
from outrider.kernels.sampling.filters import TEMPERATURE_FLOOR
from outrider.worker.engine.runner import ChildQuery
from outrider.worker.gpu.model import GpuModel
from outrider.worker.gpu.staging import Shapes, Staging
from outrider.worker.gpu.token_masks import NO_MASK, TokenMasks

LAST = "masks"
"""The last field of a row's settings."""


@dataclass(frozen=True, slots=True)
class ScoreVariant:
    """What a launch of the ranking depends on beside its buffers' contents."""

    sampled: bool
    cuts_k: bool
    cuts_p: bool
    masks: int
    """Masks that there is room for; 0: no row has one."""


def shapes(rows: int) -> Shapes:
    """Fields of the settings of at most `rows` rows with output."""
    kinds = {"top_p": "float64", "seed": "int64"}
    kinds |= dict.fromkeys(("temperature", "floor", "scale"), "float32")
    names = ("temperature", "top_k", "top_p", "floor", "seed", "choice", "drawn_at", "scale", LAST)
    return {name: (kinds.get(name, "int32"), (rows,)) for name in names}


class ChildScoring:
    """A model's head, ranked by the dice of its targets."""

    def __init__(
        self, model: GpuModel, staging: Staging, token_ids: NDArray[np.int32], share: float
    ) -> None:
        """token_ids: [columns] the target's id of each column; `share` of its tokens, in (0, 1]."""
        self._model, self._staging = model, staging
        self._columns = len(token_ids)
        plain = np.array_equal(token_ids, np.arange(self._columns))
        self._ids = None if plain else torch.from_numpy(token_ids).to(model.device)
        self._masks = TokenMasks(token_ids, model.copies)
        self._log_share = math.log(share)

    def stage(self, ranks: Sequence[tuple[ChildQuery, int, int]], padded: int) -> ScoreVariant:
        """Writes the settings of ranks, each with where its outputs begin and end; up to `padded`
        they are the last one's. Does not send them."""
        host = self._staging.host
        for rank, begin, end in ranks:
            positions = rank.rows.positions[rank.rows.outputs] + np.int32(1)
            host["drawn_at"][begin:end] = positions
            host["drawn_at"][end:padded] = 0
            self._put(rank, slice(begin, padded))
        settings = [rank.sampling for rank, _, _ in ranks]
        masked = (host["masks"][:padded] != NO_MASK).any()
        return ScoreVariant(
            any(s.temperature > 0 for s in settings),
            any(s.top_k > 0 and s.temperature > 0 for s in settings),
            any(s.top_p < 1 and s.temperature > 0 for s in settings),
            len(self._masks.allowed) if masked else 0,
        )

    def _put(self, rank: ChildQuery, lines: slice) -> None:
        host, settings = self._staging.host, rank.sampling
        warm = settings.temperature > 0
        host["temperature"][lines] = max(settings.temperature, TEMPERATURE_FLOOR) if warm else 0.0
        host["top_k"][lines] = min(settings.top_k, np.iinfo(np.int32).max)
        host["top_p"][lines] = settings.top_p
        host["floor"][lines] = math.log(settings.min_p) if settings.min_p > 0 else -math.inf
        host["seed"][lines] = np.uint64(settings.seed).astype(np.int64)
        host["choice"][lines] = np.uint32(settings.choice).astype(np.int32)
        host["scale"][lines] = scale_of(settings, rank.error_scale)
        host["masks"][lines] = self._masks.line(rank.allowed)

    def launch(self, outputs: int, variant: ScoreVariant, tokens: Tensor, logprobs: Tensor) -> None:
        """Head of the first rows with output of the pass whose body ran last, and their children.

        tokens int32, logprobs float32 [outputs, children], as of `rank_children`. Call where
        launches belong.
        """
        self._model.forward_pass.head(outputs)
        logits, d = self._model.logits[:outputs], self._staging.device
        if variant.masks:
            mask_out(logits, self._columns, self._masks.allowed, d["masks"][:outputs])
        draws = SamplingInputs(
            temperature=d["temperature"][:outputs],
            top_k=d["top_k"][:outputs],
            top_p=d["top_p"][:outputs],
            floor=d["floor"][:outputs],
            seed=d["seed"][:outputs],
            choice=d["choice"][:outputs],
            position=d["drawn_at"][:outputs],
            sampled=variant.sampled,
            cuts_k=variant.cuts_k,
            cuts_p=variant.cuts_p,
        )
        guessing = Guessing(draws, d["scale"][:outputs], self._ids, self._log_share)
        rank_children(logits, self._columns, guessing, tokens, logprobs)
