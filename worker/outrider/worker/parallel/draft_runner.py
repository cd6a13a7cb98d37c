"""A draft's runner over several ranks: they rank children among themselves wherever they can.

A pass whose rows all want children by an unfiltered distribution without penalties or biases sends
no logits; any other gathers all of them, and is ranked as without ranks. The children are the same.
"""

import numpy as np

from outrider.kernels.sampling.draft_scores_sharded import NOT_MASKED, merged
from outrider.worker.engine.runner import (
    NO_CHILDREN,
    ChildQuery,
    DraftRunner,
    QueryBatch,
    QueryPart,
    TopChildren,
    spans,
)
from outrider.worker.parallel.leader import LeadingModel
from outrider.worker.parallel.step_message import CHILD_FIELDS, ChildSpec


class ParallelDraftRunner(DraftRunner):
    """A draft's ranks, and the dice that its targets will throw."""

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
        """Best children of each part's rows with output, by perturbed score (speculation.md)."""
        wanted = [part.rank for part in step.parts if len(part.rank.rows.outputs)]
        if not wanted or not all(map(unfiltered, wanted)):
            return super().run(step)
        parts = self._leading.score(step.rows, guesses_of(wanted, self._vocabulary))
        tokens, logprobs = merged(parts, self._log_share)

        def own(part: QueryPart, begin: int, end: int) -> TopChildren:
            branch = part.rank.branch
            return TopChildren(tokens[begin:end, :branch], logprobs[begin:end, :branch])

        return [
            own(part, begin, end) if end > begin else NO_CHILDREN
            for part, begin, end in spans(step.parts, [part.rank.rows for part in step.parts])
        ]


def unfiltered(rank: ChildQuery) -> bool:
    """Whether children can be ranked by parts of a row of logits."""
    own = rank.sampling
    free = own.greedy or (own.top_k == 0 and own.top_p >= 1 and own.min_p == 0)
    return free and rank.adjuster is None and rank.branch > 0


def guesses_of(ranks: list[ChildQuery], vocabulary: int) -> ChildSpec:
    """How the children of all rows with outputs are scored, in their order."""
    masks: list[np.ndarray] = []
    numbers: dict[int, int] = {}

    def mask_of(rank: ChildQuery) -> int:
        """The number of its mask; sessions of one target share theirs."""
        if rank.allowed.all():
            return NOT_MASKED
        if id(rank.allowed) not in numbers:
            numbers[id(rank.allowed)] = len(masks)
            masks.append(forbidden(rank.allowed, vocabulary))
        return numbers[id(rank.allowed)]

    each = [
        (own.seed, own.temperature, own.choice, rank.error_scale, mask)
        for rank, own, mask in ((rank, rank.sampling, mask_of(rank)) for rank in ranks)
        for _ in range(len(rank.rows.outputs))
    ]
    held = np.stack(masks) if masks else np.empty((0, vocabulary), np.bool_)
    children = max(rank.branch for rank in ranks)
    return ChildSpec(vocabulary, children, np.array(each, CHILD_FIELDS), held)


def forbidden(allowed: np.ndarray, vocabulary: int) -> np.ndarray:
    """[vocabulary] ids that must not be guessed, those that the target does not know among them."""
    out = np.ones(vocabulary, np.bool_)
    known = allowed[:vocabulary]
    out[: len(known)] = ~known
    return out
