"""Runners: a batch of rows through the model, then tokens sampled (target) or top children (draft).

Leaves sequences and trees to the schedulers, the sampling noise that both share to
`outrider.kernels.sampling`.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from outrider.kernels.jit.handle import Handle
from outrider.kernels.sampling.draft_scores import DraftScorer, ScoreRules, children_of
from outrider.kernels.sampling.gumbel_max import Sampler
from outrider.kernels.sampling.penalties import Adjuster
from outrider.kernels.sampling.philox import NoiseRows
from outrider.worker.checkpoints.translation import Translation
from outrider.worker.model.rows import Rows
from outrider.worker.sampling.logits_processor import LogitsProcessor
from outrider.worker.sampling.params import SamplingParams

T = TypeVar("T")
NO_TOKENS = np.empty(0, np.int32)
MAX_TOKENIZERS = 4
"""Tokenizers of targets whose noise is kept; then that of those in use is made again."""
MAX_RULES = 64
"""Rules of children that are kept as compiled code takes them; then those in use are made again."""


class LanguageModel(Protocol):
    """A language model: rows in, logits out, as `outrider.worker.model.llama`."""

    def forward(self, rows: Rows) -> NDArray[np.float32]:
        """Return logits [len(rows.outputs), columns]; valid until the next call."""


class SamplePart(Protocol):
    """One sequence's part of a target's batch."""

    @property
    def rows(self) -> Rows: ...
    @property
    def sampling(self) -> SamplingParams: ...
    @property
    def logits_processor(self) -> LogitsProcessor | None: ...
    @property
    def logits_wanted(self) -> bool: ...
    @property
    def path_tokens(self) -> NDArray[np.int32]: ...


class SampleBatch(Protocol):
    """A target's batch: the rows of one pass."""

    @property
    def rows(self) -> Rows: ...
    @property
    def parts(self) -> Sequence[SamplePart]: ...


@dataclass(frozen=True, slots=True, eq=False)
class ChildRules:
    """How children of a session's rows are scored: the same object for as long as it stays so."""

    sampling: SamplingParams
    error_scale: float
    branch: int
    """Children wanted for each row."""
    allowed: NDArray[np.bool_]
    """[the target's vocabulary] ids that may be draft tokens."""
    adjuster: Adjuster | None
    """The session's penalties and biases; None if there are none."""
    translation: Translation | None = None
    """Translation for a target of another tokenizer."""

    @property
    def need_logits(self) -> bool:
        """True if children are found from whole rows of logits, on the host."""
        return self.adjuster is not None or self.translation is not None


class ChildQuery(NamedTuple):
    """One session's rows in a pass whose children are wanted."""

    rules: ChildRules
    positions: NDArray[np.int32]
    """[outputs] where the children of each would stand."""
    path_tokens: NDArray[np.int32]
    """[outputs, deepest] each row's tokens after the root, its own last, then -1."""


class QueryPart(Protocol):
    """One session's part of a draft's batch."""

    @property
    def query(self) -> ChildQuery: ...


class QueryBatch(Protocol):
    """A draft's batch: the rows of one pass."""

    @property
    def rows(self) -> Rows: ...
    @property
    def parts(self) -> Sequence[QueryPart]: ...


class TopChildren(NamedTuple):
    """Top children of each row with output."""

    tokens: NDArray[np.int32]  # [outputs, branch] the target's token ids
    logprobs: NDArray[np.float32]  # [outputs, branch] -inf where there are no more


NO_CHILDREN = TopChildren(NO_TOKENS.reshape(0, 0), np.empty((0, 0), np.float32))


class SampledTokens(NamedTuple):
    """Tokens of one sequence from a target's pass."""

    tokens: NDArray[np.int32]
    """[outputs] sampled after each row; -1: no logit is a number. Valid until the next pass."""
    logits: NDArray[np.float32]
    """[outputs, vocabulary] the model's own, valid until the next pass; none if they are not wanted
    and were not in one place."""


NOTHING_SAMPLED = SampledTokens(NO_TOKENS, np.empty((0, 0), np.float32))


class TargetRunner:
    """Runs a target's forward pass and samples."""

    def __init__(self, model: LanguageModel, vocabulary: int) -> None:
        self._model = model
        self.sampler = Sampler(vocabulary)
        self._out = NO_TOKENS
        """Of one pass; laid out once, for the largest."""

    def run(self, step: SampleBatch) -> list[SampledTokens]:
        """Return for each part the token sampled after each row with output."""
        logits, parts = self._model.forward(step.rows), step.parts
        if logits.shape[1] > self.sampler.vocab:
            logits = logits[:, : self.sampler.vocab]  # the rest is padding
        if len(logits) > len(self._out):
            self._out = np.empty(len(logits), np.int32)
        if len(parts) == 1 and len(logits):
            return [self._sample(parts[0], logits, self._out[: len(logits)])]
        return [
            self._sample(part, logits[begin:end], self._out[begin:end])
            if end > begin
            else NOTHING_SAMPLED
            for part, begin, end in spans(parts, [len(p.rows.outputs) for p in parts])
        ]

    def _sample(
        self, part: SamplePart, raw: NDArray[np.float32], tokens: NDArray[np.int32]
    ) -> SampledTokens:
        """Sample one part's tokens into `tokens` [outputs]; `raw` [outputs, vocabulary]."""
        rows, processor, logits = part.rows, part.logits_processor, raw
        if processor is not None:
            logits = processor.process(raw, part.path_tokens)
        if not logits.flags.c_contiguous:
            logits = np.ascontiguousarray(logits)
        self.sampler.sample_after(logits, rows.positions, rows.outputs, part.sampling, tokens)
        return SampledTokens(tokens, raw)


class ChildColumns:
    """Columns of a draft's logits as tokens of a target, and the noise of those."""

    def __init__(self, ids: NDArray[np.int32], vocabulary: int, log_share: float = 0.0) -> None:
        """`ids` [columns]: the target's id of each, below `vocabulary`; negative: it has none."""
        self.ids = ids
        known = ids >= 0
        self.by_id = np.full(vocabulary, -1, np.int32)
        self.by_id[ids[known]] = np.flatnonzero(known)
        no_token = vocabulary + np.arange(len(ids), dtype=np.int32)  # such columns are masked
        self.scorer = DraftScorer(np.where(known, ids, no_token), vocabulary + len(ids), log_share)

    def masked(self, allowed: NDArray[np.bool_]) -> NDArray[np.bool_] | None:
        """Return [columns] outputs that must not be draft tokens; None if there are none."""
        within = (self.ids >= 0) & (self.ids < len(allowed))
        known = within.copy()
        known[within] = allowed[self.ids[within]]
        return None if known.all() else ~known


class DraftRunner:
    """Runs a draft's forward pass and picks children by the noise that its target samples with."""

    def __init__(
        self,
        model: LanguageModel,
        output_ids: tuple[int, ...] | None,
        vocabulary: int,
        share: float = 1.0,
    ) -> None:
        """`share` of the target's tokens, in (0, 1], is among `output_ids`."""
        self._model = model
        self._log_share = math.log(share)
        ids = range(vocabulary) if output_ids is None else output_ids
        self.ids = np.array(ids, np.int32)
        """[columns] the draft's id of each column, and that of a target of the same tokenizer."""
        self.columns = len(self.ids)
        """Logits that are tokens."""
        self._own = ChildColumns(self.ids, vocabulary, self._log_share)
        self._translated: dict[int, tuple[Translation, ChildColumns]] = {}
        """By their id: those of targets of other tokenizers."""
        self._rules: dict[int, tuple[ChildRules, Handle[ScoreRules]]] = {}
        """By their id, as compiled code takes them."""
        self._children: dict[tuple[int, int], tuple[NDArray[np.int32], NDArray[np.float32]]] = {}
        """By rows and branch: those of a pass over one part."""

    def run(self, step: QueryBatch) -> list[TopChildren]:
        """Return the top children of each part, by perturbed score (speculation.md).

        They are valid until the next pass.
        """
        logits, parts = self._model.forward(step.rows), step.parts
        if logits.shape[1] > len(self.ids):
            logits = logits[:, : len(self.ids)]  # what follows is padding
        if len(parts) == 1 and len(logits):
            return [self._top_children_alone(parts[0].query, logits)]
        return [
            self.top_children(part.query, logits[begin:end]) if end > begin else NO_CHILDREN
            for part, begin, end in spans(parts, [len(p.query.positions) for p in parts])
        ]

    def _top_children_alone(self, query: ChildQuery, logits: NDArray[np.float32]) -> TopChildren:
        """Do `top_children` of a pass's only part, into arrays that are laid out once."""
        shape = len(logits), query.rules.branch
        out = self._children.get(shape)
        if out is None:
            out = self._children[shape] = children_of(*shape)
        return self.top_children(query, logits, out)

    def top_children(
        self,
        query: ChildQuery,
        logits: NDArray[np.float32],
        out: tuple[NDArray[np.int32], NDArray[np.float32]] | None = None,
    ) -> TopChildren:
        """Return the top children of one part's rows with output; logits [outputs, columns].

        `out`: the arrays to return, of `children_of`; None makes new ones.
        """
        rules, columns = query.rules, self.columns_of(query.rules)
        if rules.adjuster is not None:
            logits = np.array(logits, np.float32, order="C")
            rules.adjuster.adjust(logits, query.path_tokens, columns.by_id)
        tokens, logprobs = columns.scorer.score(
            logits, query.positions, self.compiled(rules), rules.branch, out
        )
        return TopChildren(tokens, logprobs)

    def noise(self, rules: ChildRules) -> Handle[NoiseRows]:
        """Return the noise by which children are scored, for compiled code."""
        return self.columns_of(rules).scorer.compiled_noise

    def columns_of(self, rules: ChildRules) -> ChildColumns:
        """Return the columns as tokens of a session's target; made once for each tokenizer."""
        translation = rules.translation
        if translation is None:
            return self._own
        known = self._translated.get(id(translation))
        if known is None:
            if len(self._translated) >= MAX_TOKENIZERS:
                self._translated.clear()
            ids, vocabulary = translation.target_ids[self.ids], len(translation.allowed)
            columns = ChildColumns(ids, vocabulary, self._log_share)
            known = self._translated[id(translation)] = translation, columns
        return known[1]

    def compiled(self, rules: ChildRules) -> Handle[ScoreRules]:
        """Return rules as compiled code takes them; made once for each object."""
        known = self._rules.get(id(rules))
        if known is None:
            if len(self._rules) >= MAX_RULES:
                self._rules.clear()
            columns = self.columns_of(rules)
            masked = columns.masked(rules.allowed)
            compiled = columns.scorer.rules(rules.sampling, rules.error_scale, masked)
            known = self._rules[id(rules)] = rules, compiled
        return known[1]


def spans(parts: Sequence[T], outputs: Sequence[int]) -> Iterator[tuple[T, int, int]]:
    """Yield each part with the begin and end of its outputs among those of all."""
    end = 0
    for part, count in zip(parts, outputs, strict=True):
        begin, end = end, end + count
        yield part, begin, end
