"""Scores of the children of a draft's rows on the device: settings staged, kernels launched.

Leaves which rows they are to `draft_runner` and `chained_passes`, the order of children to
`outrider.kernels.gpu.top_children`.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from outrider.kernels.gpu.child_inputs import ChildInputs, mask_out, scale_of
from outrider.kernels.gpu.top_children import top_children
from outrider.worker.engine.runner import ChildQuery, ChildRules
from outrider.worker.gpu.input_layout import (
    KINDS,
    SAMPLING,
    Shapes,
    Staging,
    sampling_columns,
    sampling_inputs,
)
from outrider.worker.gpu.model import GpuModel
from outrider.worker.gpu.token_masks import NO_MASK, TokenMasks
from outrider.worker.sampling.params import SETTINGS

LAST = "masks"
"""The last field of a row's settings."""


@dataclass(frozen=True, slots=True)
class ScoreVariant:
    """Settings that a launch depends on beside its buffers' contents: part of its graph's key."""

    sampled: bool
    filtered: bool
    """True if some row with a temperature has top-k or top-p."""
    masks: int
    """Masks that there is room for; 0: no row has one."""


def shapes(rows: int) -> Shapes:
    """Return the fields of the settings of at most `rows` rows with output."""
    kinds = KINDS | {"scale": "float32"}
    names = (*SAMPLING, "scale", LAST)
    return {name: (kinds.get(name, "int32"), (rows,)) for name in names}


class ChildScoring:
    """A model's head, and the top children by the noise of its targets."""

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
        self._staged: tuple[int, list[tuple[ChildRules, int]]] = 0, []
        """Rows whose settings are staged, and rules, each with its first row."""
        self._variant = ScoreVariant(False, False, 0)
        """Variant of the rules that are staged."""

    def stage(self, queries: Sequence[tuple[ChildQuery, int, int]], padded: int) -> ScoreVariant:
        """Write the settings of queries, each with its first and last output; does not send them.

        Up to `padded` they are the last one's.
        """
        host = self._staging.host
        rules = [(query.rules, begin) for query, begin, _ in queries]
        rows, staged = self._staged
        if padded > rows or rules != staged:  # else they are those of the pass before
            for one, begin in rules:
                self._put(one, slice(begin, padded))
            self._staged = padded, rules
            settings = [one.sampling for one, _ in rules]
            masked = (host["masks"][:padded] != NO_MASK).any()
            self._variant = ScoreVariant(
                any(s.temperature > 0 for s in settings),
                any((s.top_k > 0 or s.top_p < 1) and s.temperature > 0 for s in settings),
                len(self._masks.allowed) if masked else 0,
            )
        host["sampled_at"][:padded] = 0
        for query, begin, end in queries:
            host["sampled_at"][begin:end] = query.positions
        return self._variant

    def _put(self, rules: ChildRules, lines: slice) -> None:
        host = self._staging.host
        settings = np.array(rules.sampling.settings, SETTINGS)
        for name, value in sampling_columns(settings).items():
            host[name][lines] = value
        host["scale"][lines] = scale_of(rules.sampling, rules.error_scale)
        mask = NO_MASK if rules.need_logits else self._masks.line(rules.allowed)
        host["masks"][lines] = mask

    def launch(self, outputs: int, variant: ScoreVariant, tokens: Tensor, logprobs: Tensor) -> None:
        """Launch the head of the first rows with output of the last pass, and find their children.

        tokens int32, logprobs float32 [outputs, children], as of `top_children`. Call where
        launches belong.
        """
        self._model.forward_pass.head(outputs)
        logits, d = self._model.logits[:outputs], self._staging.device
        if variant.masks:
            mask_out(logits, self._columns, self._masks.allowed, d["masks"][:outputs])
        sampling = sampling_inputs(d, outputs, sampled=variant.sampled, filtered=variant.filtered)
        inputs = ChildInputs(sampling, d["scale"][:outputs], self._ids, self._log_share)
        top_children(logits, self._columns, inputs, tokens, logprobs)
