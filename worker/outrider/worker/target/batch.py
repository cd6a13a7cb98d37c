"""Batches of a target: verify rows and prefill chunks of several sequences, run in one pass.

Leaves which sequences run to `target/scheduler`, and which nodes to `target/selection`.
"""

from dataclasses import dataclass

import numpy as np

from outrider.worker.model.rows import Rows, joined, prompt_rows, tree_rows
from outrider.worker.sampling.logits_processor import LogitsProcessor, path_tokens
from outrider.worker.sampling.params import SamplingParams
from outrider.worker.target.selection import (
    NO_NODES,
    PlainCost,
    SelectedRows,
    Selection,
    pruned,
)
from outrider.worker.target.sequence import Sequence
from outrider.worker.tree.growth import Ints

ROOT_DEPTH = np.zeros(1, np.int32)


@dataclass(frozen=True, slots=True)
class TargetPart:
    """One sequence's rows in a batch: its root and nodes, or a prefill chunk."""

    sequence: Sequence
    rows: Rows
    selected: SelectedRows
    """The nodes among the rows."""

    @classmethod
    def prefill(cls, sequence: Sequence, limit: int) -> "TargetPart":
        """Take the next prefill chunk, at most `limit` rows; the last chunk ends with the root."""
        end = min(sequence.computed + limit, sequence.length)
        tokens = sequence.tokens[sequence.computed : end]
        last = end == sequence.length
        rows = prompt_rows(tokens, sequence.computed, sequence.kv, wants_output=last)
        return cls(sequence, rows, NO_NODES)

    @classmethod
    def verify(cls, sequence: Sequence, selected: SelectedRows) -> "TargetPart":
        """Take the root and the selected nodes, without those that the grammar forbids."""
        if sequence.logits_processor is not None and len(selected.nodes) > 0:
            allowed = sequence.logits_processor.allowed(selected.paths, selected.tokens)
            if allowed is not None:
                selected = pruned(selected, allowed, sequence)
        return cls(sequence, verify_rows(sequence, selected), selected)

    @property
    def sampling(self) -> SamplingParams:
        """Sampling params of the request."""
        return self.sequence.submit.sampling

    @property
    def logits_processor(self) -> LogitsProcessor | None:
        """The sequence's penalties, logit bias and grammar; None if it has none."""
        return self.sequence.logits_processor

    @property
    def logits_wanted(self) -> bool:
        """True if the request asks for log-probabilities of its tokens."""
        return self.sequence.submit.logprobs is not None

    @property
    def path_tokens(self) -> Ints:
        """[outputs, deepest] each row's tokens after the root, for the logits processor."""
        return path_tokens(self.selected.paths, self.selected.tokens)


def verify_rows(sequence: Sequence, selected: SelectedRows) -> Rows:
    """Build the rows of a verify pass: row 0 is the root, the selected nodes follow in order."""
    root = sequence.position
    if len(selected.nodes) == 0:
        return prompt_rows(sequence.tokens[root : root + 1], root, sequence.kv, wants_output=True)
    paths = selected.paths
    ancestors = np.zeros((len(selected.nodes) + 1, max(1, paths.ancestors.shape[1])), np.int32)
    ancestors[1:, : paths.ancestors.shape[1]] = paths.ancestors + np.int32(root + 1)
    depth = np.concatenate([ROOT_DEPTH, paths.depth])
    return tree_rows(
        tokens=np.concatenate([sequence.tokens[root : root + 1], selected.tokens]),
        offsets=np.arange(root, root + len(depth), dtype=np.int32),
        block_table=sequence.kv,
        prefix=np.full(len(depth), root + 1, np.int32),
        ancestors=ancestors,
        depth=depth,
    )


@dataclass(frozen=True, slots=True)
class TargetBatch:
    """Rows of one pass."""

    parts: tuple[TargetPart, ...]
    """Those that decode, then those that prefill."""
    rows: Rows
    """Of all parts, in their order."""
    decoding_count: int
    expected_seconds: float
    """Of the pass, by the step costs."""
    plain: PlainCost
    """Of the step without nodes."""
    started: float

    @classmethod
    def of(
        cls, decode: list[TargetPart], prefill: list[TargetPart], selection: Selection, now: float
    ) -> "TargetBatch":
        """Join the rows of all parts; the times are those of `selection`."""
        parts = (*decode, *prefill)
        return cls(
            parts=parts,
            rows=joined([part.rows for part in parts]),
            decoding_count=len(decode),
            expected_seconds=selection.expected_seconds,
            plain=selection.plain,
            started=now,
        )

    @property
    def decoding(self) -> tuple[TargetPart, ...]:
        """The parts past prefill."""
        return self.parts[: self.decoding_count]

    @property
    def prefill_rows(self) -> int:
        """Rows of prefill chunks."""
        return sum(part.rows.count for part in self.parts[self.decoding_count :])
