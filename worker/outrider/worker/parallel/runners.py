"""Runners over several ranks, which sample tokens and score children among themselves if they can.

A pass whose rows all ask for an unfiltered distribution, without penalties or biases, sends no
logits; any other gathers all of them, and goes on as without ranks. The tokens are the same.
"""

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from outrider.kernels.sampling.draft_scores import NOT_MASKED, merged
from outrider.worker.engine.runner import (
    NO_CHILDREN,
    ChildQuery,
    ChildRules,
    DraftRunner,
    QueryBatch,
    QueryPart,
    SampleBatch,
    SampledTokens,
    SamplePart,
    TargetRunner,
    TopChildren,
    spans,
)
from outrider.worker.model.rows import Rows
from outrider.worker.parallel.leader import LeadingModel
from outrider.worker.parallel.step_message import CHILD_FIELDS, ChildSpec, SampleSpec
from outrider.worker.sampling.params import SETTINGS, SamplingParams

Floats = NDArray[np.float32]
Int32 = NDArray[np.int32]
NO_LOGITS = np.empty((0, 0), np.float32)


class ParallelTargetRunner(TargetRunner):
    """Runs a target over its ranks, and samples there."""

    def __init__(self, model: LeadingModel, vocabulary: int) -> None:
        super().__init__(model, vocabulary)
        self._leading = model
        self._vocabulary = vocabulary

    def run(self, step: SampleBatch) -> list[SampledTokens]:
        """Return for each part the token sampled after each row with output."""
        if not all(map(samples_on_ranks, (p for p in step.parts if len(p.rows.outputs)))):
            return super().run(step)
        outputs = [len(part.rows.outputs) for part in step.parts]
        each = (
            part.sampling for part, n in zip(step.parts, outputs, strict=True) for _ in range(n)
        )
        tokens = self._leading.sample(step.rows, sample_spec(each, self._vocabulary))
        return [
            SampledTokens(tokens[begin:end], NO_LOGITS)
            for _, begin, end in spans(step.parts, outputs)
        ]


class ParallelStageSampler:
    """Runs a target's last stage over its ranks, and samples there; see `RankSampler`."""

    def __init__(self, model: LeadingModel, vocabulary: int) -> None:
        self._model = model
        self._vocabulary = vocabulary

    def sample(self, rows: Rows, hidden: Floats | None, each: Sequence[SamplingParams]) -> Int32:
        """Run the layers, then sample the token after each row with output."""
        return self._model.sample(rows, sample_spec(each, self._vocabulary), hidden)


class ParallelDraftRunner(DraftRunner):
    """Runs a draft over its ranks, and scores children there."""

    def __init__(
        self,
        model: LeadingModel,
        output_ids: tuple[int, ...] | None,
        vocabulary: int,
        share: float = 1.0,
    ) -> None:
        super().__init__(model, output_ids, vocabulary, share)
        self._leading = model
        self._vocabulary = vocabulary

    def run(self, step: QueryBatch) -> list[TopChildren]:
        """Return the top children of each part, by perturbed score (speculation.md)."""
        queries = [part.query for part in step.parts if len(part.query.positions)]
        if not queries or not all(map(scores_on_ranks, queries)):
            return super().run(step)
        parts = self._leading.score(step.rows, child_spec(queries, self._vocabulary))
        tokens, logprobs = merged(parts, self._log_share)

        def own(part: QueryPart, begin: int, end: int) -> TopChildren:
            branch = part.query.rules.branch
            return TopChildren(tokens[begin:end, :branch], logprobs[begin:end, :branch])

        return [
            own(part, begin, end) if end > begin else NO_CHILDREN
            for part, begin, end in spans(step.parts, [len(p.query.positions) for p in step.parts])
        ]


def samples_on_ranks(part: SamplePart) -> bool:
    """True if a token can be sampled from shards of a row of logits, which are not wanted."""
    processed = part.logits_processor is not None
    return part.sampling.unfiltered and not processed and not part.logits_wanted


def scores_on_ranks(query: ChildQuery) -> bool:
    """True if children can be scored from shards of a row of logits."""
    rules = query.rules
    return rules.sampling.unfiltered and not rules.need_logits and rules.branch > 0


def sample_spec(each: Iterable[SamplingParams], vocabulary: int) -> SampleSpec:
    """Describe the sampling of all rows with outputs, in their order."""
    return SampleSpec(vocabulary, np.array([one.settings for one in each], SETTINGS))


def child_spec(queries: list[ChildQuery], vocabulary: int) -> ChildSpec:
    """Describe the scoring of the children of all rows with outputs, in their order."""
    masks: list[np.ndarray] = []
    numbers: dict[int, int] = {}

    def mask_of(rules: ChildRules) -> int:
        """Number its mask; sessions of one target share theirs."""
        if rules.allowed.all():
            return NOT_MASKED
        if id(rules.allowed) not in numbers:
            numbers[id(rules.allowed)] = len(masks)
            masks.append(forbidden(rules.allowed, vocabulary))
        return numbers[id(rules.allowed)]

    each = [
        (rules.sampling.settings, rules.error_scale, mask)
        for rules, mask, outputs in ((q.rules, mask_of(q.rules), len(q.positions)) for q in queries)
        for _ in range(outputs)
    ]
    all_masks = np.stack(masks) if masks else np.empty((0, vocabulary), np.bool_)
    children = max(query.rules.branch for query in queries)
    return ChildSpec(vocabulary, children, np.array(each, CHILD_FIELDS), all_masks)


def forbidden(allowed: np.ndarray, vocabulary: int) -> np.ndarray:
    """Return [vocabulary] ids that must not be draft tokens; those unknown to the target are."""
    out = np.ones(vocabulary, np.bool_)
    known = allowed[:vocabulary]
    out[: len(known)] = ~known
    return out
