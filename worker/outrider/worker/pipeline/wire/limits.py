"""Limits of a pipeline's records and results: the ranges of all numbers, before any is used.

Leaves whether they agree with the records before to `pipeline.stage`.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from outrider.worker.errors import InvalidField, ProtocolViolation
from outrider.worker.kv.block_pool import BLOCK
from outrider.worker.pipeline.records import (
    FORM_BROKEN,
    Begin,
    End,
    Move,
    Record,
    Results,
    Segment,
)

MAX_TREE_BLOCKS = 16
"""Most tree blocks of one sequence: 1024 tree slots."""
MAX_LOGPROBS = 1024
"""Likeliest tokens that a request may ask for, and more."""


@dataclass(frozen=True, slots=True)
class RecordLimits:
    """Ranges of one stage."""

    blocks: int
    """Blocks of 64 KV slots."""
    rows: int
    """Most of one segment."""
    context: int
    """Most tokens of one sequence."""
    vocabulary: int
    embeds: bool
    """True for stage 0, whose segments have no hidden states."""

    def check(self, record: Record) -> None:
        """Raise `ProtocolViolation` for a number out of its range."""
        match record:
            case Segment():
                self._check_segment(record)
            case Move():
                for field in ("sources", "destinations", "freed"):
                    _within(f"move.{field}", getattr(record, field), self.slots)
                _different("move.destinations", record.destinations)
            case Begin():
                self._check_begin(record)
            case End():
                pass

    @property
    def slots(self) -> int:
        return BLOCK * self.blocks

    def _check_segment(self, segment: Segment) -> None:
        if segment.count > self.rows:
            raise ProtocolViolation(f"segment: {segment.count} rows; {self.rows} are allowed")
        if segment.count == 0:
            return
        if (segment.hidden is None) is not self.embeds:
            has = "no hidden states" if segment.hidden is None else "hidden states"
            raise ProtocolViolation(f"segment.hidden: {has}; only segments for stage 0 have none")
        _within("segment.slots", segment.slots, self.slots)
        _within("segment.tokens", segment.tokens, self.vocabulary)
        _within("segment.positions", segment.positions, self.context)
        _different("segment.slots", segment.slots)
        runs = 1 + np.count_nonzero(np.diff(segment.sequence))
        if runs != len(np.unique(segment.sequence)):
            raise ProtocolViolation("segment.sequences: rows of a sequence must be side by side")
        if segment.ancestors.shape[1] > BLOCK * MAX_TREE_BLOCKS // 8:
            raise ProtocolViolation(
                f"segment.ancestors: masks of {segment.ancestors.shape[1]} bytes; "
                f"{BLOCK * MAX_TREE_BLOCKS // 8} are allowed"
            )

    def _check_begin(self, begin: Begin) -> None:
        count = len(begin.tokens)
        _require(1 <= count <= self.context, "begin.tokens", count, f"1 to {self.context}")
        _require(0 <= begin.prompt <= count, "begin.prompt", begin.prompt, f"0 to {count}")
        _within("begin.tokens", begin.tokens, self.vocabulary)
        blocks = len(begin.tree_blocks)
        _require(
            1 <= blocks <= MAX_TREE_BLOCKS, "begin.tree_blocks", blocks, f"1 to {MAX_TREE_BLOCKS}"
        )
        kept = len(begin.prefix_blocks)
        most = count // BLOCK
        _require(kept <= most, "begin.prefix_blocks", kept, f"0 to {most} for {count} tokens")
        for field in ("prefix_blocks", "tree_blocks"):
            _within(f"begin.{field}", getattr(begin, field), self.blocks)
        _different("begin.tree_blocks", begin.tree_blocks)
        wanted = begin.logprobs or 0
        _require(wanted <= MAX_LOGPROBS, "begin.logprobs", wanted, f"at most {MAX_LOGPROBS}")
        try:
            begin.sampling.validate(self.vocabulary)
        except InvalidField as error:
            raise ProtocolViolation(f"begin.{error}") from None


@dataclass(frozen=True, slots=True)
class ResultLimits:
    """Ranges of what a leader takes from the last stage."""

    rows: int
    """Most of one segment."""
    vocabulary: int

    def check(self, results: Results) -> None:
        """Raise `ProtocolViolation` for a number out of its range."""
        count, likeliest = results.top_tokens.shape
        _require(count <= self.rows, "results.rows", count, f"at most {self.rows}")
        _require(
            likeliest <= MAX_LOGPROBS, "results.top_tokens", likeliest, f"at most {MAX_LOGPROBS}"
        )
        _within("results.tokens", results.tokens, self.vocabulary, FORM_BROKEN)
        _within("results.top_tokens", results.top_tokens, self.vocabulary, -1)


def _within(field: str, values: NDArray[Any], limit: int, least: int = 0) -> None:
    """Raise `ProtocolViolation` unless all values are `least` to limit - 1."""
    if values.size and not least <= values.min() <= values.max() < limit:
        wrong = values[(values < least) | (values >= limit)][0]
        raise ProtocolViolation(
            f"{field}: {wrong} is not allowed; it must be {least} to {limit - 1}"
        )


def _different(field: str, values: NDArray[Any]) -> None:
    if len(np.unique(values)) != len(values):
        raise ProtocolViolation(f"{field}: they must be different")


def _require(holds: bool, field: str, value: int, allowed: str) -> None:
    if not holds:
        raise ProtocolViolation(f"{field}: {value} is not allowed; {allowed}")
