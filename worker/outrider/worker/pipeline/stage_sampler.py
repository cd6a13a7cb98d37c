"""Sampler of the last stage: one token after each row, by the noise of its request.

A row's penalties and grammar run over the committed tokens and its own path, as in an unpipelined
target. The root of a sequence whose grammar is being compiled is set aside with its logits, so that
no other waits: one row a sequence, of 4 bytes for each token of the vocabulary. Leaves sampling
itself to `outrider.kernels.sampling.gumbel_max`.
"""

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from outrider.kernels.sampling.gumbel_max import Sampler
from outrider.kernels.sampling.log_softmax import log_probabilities
from outrider.worker.errors import ProtocolViolation
from outrider.worker.model.rows import Rows
from outrider.worker.pipeline.records import FORM_BROKEN, Begin, Floats, Ints, Results
from outrider.worker.pipeline.stage_sequence import SequenceRows
from outrider.worker.sampling.logits_processor import LogitsProcessor, LogitsProcessors
from outrider.worker.sampling.params import SamplingParams

NO_LOGITS = np.empty((0, 0), np.float32)


class PendingRoot(NamedTuple):
    """The root of one sequence, which is sampled later."""

    segment: int
    part: SequenceRows
    """Its rows in that segment; the root alone is to be sampled."""
    logits: Floats
    """Logits of the root, float32[1, vocabulary]."""


class RankSampler(Protocol):
    """Ranks of a last stage that sample among themselves, each among its own ids."""

    def sample(self, rows: Rows, hidden: Floats | None, each: Sequence[SamplingParams]) -> Ints:
        """Run the layers, then sample the token after each row with output: int32[outputs].

        `hidden` as for `stage.Executor.compute`; `each`: the settings of each of these rows.
        """


class StageSampler:
    """Samples for every sequence of a pipeline."""

    def __init__(self, processors: LogitsProcessors) -> None:
        self._sampler = Sampler(processors.vocabulary)
        self._processors = processors
        self._by_sequence: dict[int, LogitsProcessor | None] = {}
        self._aside: dict[int, PendingRoot] = {}
        """Roots that are set aside, by sequence."""

    @property
    def waits(self) -> bool:
        """True if rows are set aside."""
        return bool(self._aside)

    def begin(self, begin: Begin) -> None:
        """Take a sequence; its grammar begins to be compiled where it is not."""
        prompt, answer = np.split(begin.tokens, [begin.prompt])
        processor = self._processors.start(begin.sampling, prompt, begin.grammar)
        self._by_sequence[begin.sequence] = processor
        self.commit(begin.sequence, answer)

    def commit(self, sequence: int, tokens: Ints) -> None:
        """Take committed tokens of a sequence's answer."""
        processor = self._by_sequence[sequence]
        if processor is not None:
            processor.commit(tokens)

    def end(self, sequence: int) -> None:
        """Forget a sequence."""
        del self._by_sequence[sequence]
        self._aside.pop(sequence, None)

    def samples_on_ranks(self, parts: Iterable[SequenceRows]) -> bool:
        """True if no row needs all of its logits in one place."""
        begins = (part.sequence.begin for part in parts if part.rows.sample.any())
        return all(
            begin.sampling.unfiltered
            and begin.logprobs is None
            and self._by_sequence[begin.sequence] is None
            for begin in begins
        )

    def sample(self, segment: int, parts: Iterable[SequenceRows], logits: Floats) -> Results:
        """Sample after the rows of a segment that want it; `logits` [those rows, >= vocabulary].

        A root whose grammar is being compiled is set aside, and not among the results. Raises
        `ProtocolViolation` for other rows of its sequence.
        """
        results, first = [no_results(segment)], 0
        for part in parts:
            count = int(np.count_nonzero(part.rows.sample))
            if count:
                results += self._sample_or_wait(segment, part, logits[first : first + count])
            first += count
        return joined_results(results)

    def sample_aside(self) -> list[Results]:
        """Sample after the roots that were set aside and need wait no longer."""
        ready = [sequence for sequence in self._aside if self._ready(sequence)]
        return [self._sample(*self._aside.pop(sequence)) for sequence in ready]

    def _ready(self, sequence: int) -> bool:
        processor = self._by_sequence[sequence]
        return processor is None or processor.ready

    def _sample_or_wait(self, segment: int, part: SequenceRows, logits: Floats) -> list[Results]:
        """Sample after rows of one sequence; set its root aside for its grammar."""
        sequence = part.sequence.begin.sequence
        waits = sequence in self._aside
        if not waits and self._ready(sequence):
            return [self._sample(segment, part, logits)]
        if waits or len(logits) > 1:
            raise ProtocolViolation(
                f"sequence {sequence} is sampled after {waits + len(logits)} rows before its "
                "grammar is compiled; 1 may wait"
            )
        kept = part._replace(rows=part.rows.with_hidden(None))
        self._aside[sequence] = PendingRoot(segment, kept, logits[:, : self._sampler.vocab].copy())
        return []

    def _sample(self, segment: int, part: SequenceRows, logits: Floats) -> Results:
        begin, wanted = part.sequence.begin, part.rows.sample
        raw = logits[:, : self._sampler.vocab]  # the rest is padding
        processor, processed = self._by_sequence[begin.sequence], raw
        if processor is not None:
            processed = processor.process(raw, part.placed.paths[wanted])
        positions = part.rows.positions[wanted] + np.int64(1)
        tokens = self._sampler.sample(processed, positions, begin.sampling)
        if processor is not None and processor.failure is not None:
            tokens[:] = FORM_BROKEN
        logprobs, top_tokens, top_logprobs = logprobs_of(raw, tokens, begin.logprobs)
        return Results(segment, part.rows.rows[wanted], tokens, logprobs, top_tokens, top_logprobs)


def samplings(parts: Iterable[SequenceRows]) -> list[SamplingParams]:
    """Return the settings of each row that is to be sampled, in order."""
    return [
        part.sequence.begin.sampling
        for part in parts
        for _ in range(np.count_nonzero(part.rows.sample))
    ]


def sampled_results(segment: int, parts: Iterable[SequenceRows], tokens: Ints) -> Results:
    """Return the results of rows that were sampled on ranks, in order; they have no logprobs."""
    rows = np.concatenate([part.rows.rows[part.rows.sample] for part in parts])
    return Results(segment, rows, tokens, *logprobs_of(NO_LOGITS, tokens, None))


def logprobs_of(logits: Floats, tokens: Ints, top: int | None) -> tuple[Floats, Ints, Floats]:
    """Return the log-probabilities of `Results`, with `top` likeliest tokens; None: none at all."""
    count, width = len(tokens), top or 0
    logprobs = np.full(count, np.nan, np.float32)
    top_tokens = np.full((count, width), -1, np.int32)
    top_logprobs = np.full((count, width), -np.inf, np.float32)
    if top is not None:
        for row in np.flatnonzero(tokens >= 0):
            found = log_probabilities(logits[row], int(tokens[row]), top)
            logprobs[row], top_tokens[row], top_logprobs[row] = found
    return logprobs, top_tokens, top_logprobs


def no_results(segment: int) -> Results:
    """Return the results of a segment in which nothing is sampled."""
    ints, floats = np.zeros(0, np.int32), np.zeros(0, np.float32)
    return Results(
        segment, np.zeros(0, np.int64), ints, floats, ints.reshape(0, 0), floats.reshape(0, 0)
    )


def joined_results(parts: list[Results]) -> Results:
    """Join the results of one segment's sequences."""
    width = max(part.top_tokens.shape[1] for part in parts)
    return Results(
        parts[0].segment,
        np.concatenate([part.rows for part in parts]),
        np.concatenate([part.tokens for part in parts]),
        np.concatenate([part.logprobs for part in parts]),
        np.concatenate([_widened(part.top_tokens, width, -1) for part in parts]),
        np.concatenate([_widened(part.top_logprobs, width, -np.inf) for part in parts]),
    )


def _widened(array: NDArray[Any], width: int, filler: float) -> NDArray[Any]:
    """Pad the lines of an array."""
    return np.pad(array, ((0, 0), (0, width - array.shape[1])), constant_values=filler)
