"""Messages of the leading rank, each a flat int32 array: one at the start, then one a step.

A step's message has a header of fixed size, then KV to be moved, then the rows of a pass: numbers
only, so that nothing is pickled between two passes. Leaves sending them to `collectives`.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from outrider.kernels.cpu.numeric_kind import NumericPath
from outrider.worker.model.rows import Rows
from outrider.worker.sampling.params import SETTINGS

Int32 = NDArray[np.int32]
Move = tuple[Int32, Int32]
"""Slots of the KV cache: sources, destinations."""
PATHS = tuple(NumericPath)

HEADER = 13
"""Numbers that every step begins with: its length, rows, outputs, ancestors a row, sequences,
blocks a sequence, moves, numbers of a hidden state, whether they are `by_library`, the kind of
result (`LOGITS` and on), of which vocabulary, and two numbers more of that: children and masks of
`CHILDREN`; variant and logits of `DEVICE_SAMPLES`."""
ROW_FIELDS = ("tokens", "positions", "slots", "sequence", "prefix", "depth")
"""Fields of `Rows` with a number a row."""
STOP = 0
"""Rows of the step that ends a follower's loop."""
LOGITS, SAMPLES, CHILDREN, DEVICE_SAMPLES = range(4)
"""Kinds of result."""


@dataclass(frozen=True, slots=True)
class InitMessage:
    """The leader's decisions by which every rank builds its share of the model."""

    path: NumericPath
    blocks: int
    """Blocks of each rank's KV cache."""
    longest: int
    """Slots of the longest sequence."""
    rows: int
    """Most of one pass."""

    def encode(self) -> Int32:
        """Encode for `ProcessGroup.broadcast`: the length comes first."""
        numbers = PATHS.index(self.path), self.blocks, self.longest, self.rows
        return np.array([1 + len(numbers), *numbers], np.int32)

    @classmethod
    def decode(cls, numbers: Int32) -> Self:
        """Decode what `encode` encoded."""
        path, blocks, longest, rows = (int(n) for n in numbers[1:])
        return cls(PATHS[path], blocks, longest, rows)


@dataclass(frozen=True, slots=True)
class SampleSpec:
    """Sampling, without filters, that ranks do among themselves, instead of sending logits."""

    vocabulary: int
    """Ids that may be sampled; further columns are padding."""
    each: NDArray[np.void]  # [outputs] of SETTINGS


CHILD_FIELDS = np.dtype([("settings", SETTINGS), ("error_scale", np.float64), ("mask", np.int64)])
"""Scoring, without filters, of the children of one row with output; `mask`: which, or -1."""


@dataclass(frozen=True, slots=True)
class ChildSpec:
    """Scoring of children that ranks of a draft do among themselves, instead of sending logits."""

    vocabulary: int
    """Size of the target's vocabulary."""
    children: int
    """Most children of each row."""
    each: NDArray[np.void]  # [outputs] of CHILD_FIELDS
    masks: NDArray[np.bool_]  # [masks, vocabulary] ids that must not be draft tokens


class DeviceSampleSpec(NamedTuple):
    """Sampling, with filters, that ranks on devices do among themselves."""

    vocabulary: int
    """Ids that may be sampled; further columns are padding."""
    variant: int
    """Variant of the sampling kernel; not 0."""
    logits: bool
    """True if the leader wants the logits too."""
    each: NDArray[np.void]  # [outputs] of SETTINGS


Wanted = SampleSpec | ChildSpec | DeviceSampleSpec | None
"""Result of a step at the leader; None: the logits."""


@dataclass(frozen=True, slots=True)
class StepMessage:
    """KV to move, then rows to run; without rows: the end."""

    moves: Sequence[Move]
    """In this order: one may read what another wrote."""
    rows: Rows | None
    wanted: Wanted = None
    hidden: NDArray[np.float32] | None = None
    """[rows, width] hidden states that a pipeline stage begins with; None: the ranks embed."""


def encode(step: StepMessage) -> Int32:
    """Encode a step as one array; its length is its first number."""
    header = np.zeros(HEADER, np.int32)
    payload: list[Int32] = []
    for sources, destinations in step.moves:
        payload += [np.array([len(sources)], np.int32), sources, destinations]
    rows = step.rows
    if rows is not None:
        header[1:6] = rows.count, len(rows.outputs), rows.ancestors.shape[1], *rows.tables.shape
        payload += [getattr(rows, name) for name in ROW_FIELDS]
        payload += [rows.outputs, rows.ancestors.reshape(-1), rows.tables.reshape(-1)]
        header[8] = rows.by_library
    if step.hidden is not None:
        header[7] = step.hidden.shape[1]
        payload.append(np.ascontiguousarray(step.hidden).reshape(-1).view(np.int32))
    match step.wanted:
        case SampleSpec(vocabulary, each):
            header[9:] = SAMPLES, vocabulary, 0, 0
            payload.append(each.view(np.int32))
        case ChildSpec(vocabulary, children, each, masks):
            header[9:] = CHILDREN, vocabulary, children, len(masks)
            payload += [each.view(np.int32), _packed(masks)]
        case DeviceSampleSpec(vocabulary, variant, logits, each):
            header[9:] = DEVICE_SAMPLES, vocabulary, variant, logits
            payload.append(each.view(np.int32))
    header[6] = len(step.moves)
    header[0] = HEADER + sum(map(len, payload))
    return np.concatenate([header, *payload], dtype=np.int32)


def decode(numbers: Int32) -> StepMessage:
    """Decode what `encode` encoded; arrays are views of `numbers`."""
    count, outputs, deepest, sequences, blocks, moved, width, by_library, *wanted = map(
        int, numbers[1:HEADER]
    )
    at = HEADER

    def take(size: int) -> Int32:
        nonlocal at
        at += size
        return numbers[at - size : at]

    lengths = (int(take(1)[0]) for _ in range(moved))
    moves = [(take(length), take(length)) for length in lengths]
    if count == STOP:
        return StepMessage(moves, None)
    rows = Rows(
        **{name: take(count) for name in ROW_FIELDS},
        outputs=take(outputs),
        ancestors=take(count * deepest).reshape(count, deepest),
        tables=take(sequences * blocks).reshape(sequences, blocks),
        by_library=bool(by_library),
    )
    hidden = take(count * width).view(np.float32).reshape(count, width) if width else None
    return StepMessage(moves, rows, _wanted(take, outputs, *wanted), hidden)


def _wanted(
    take: Callable[[int], Int32], outputs: int, kind: int, vocabulary: int, one: int, other: int
) -> Wanted:
    """Decode what follows the rows; the last four numbers are the header's."""
    if kind == SAMPLES:
        return SampleSpec(vocabulary, _records(take, outputs, SETTINGS))
    if kind == CHILDREN:
        each = _records(take, outputs, CHILD_FIELDS)
        masks = _unpacked(take(other * _words(vocabulary)), other, vocabulary)
        return ChildSpec(vocabulary, one, each, masks)
    if kind == DEVICE_SAMPLES:
        return DeviceSampleSpec(vocabulary, one, bool(other), _records(take, outputs, SETTINGS))
    return None


def _records(take: Callable[[int], Int32], count: int, kind: np.dtype) -> NDArray[np.void]:
    """Take `count` records of `kind`; a copy is aligned."""
    return take(count * kind.itemsize // 4).copy().view(kind)


def _words(vocabulary: int) -> int:
    """Count the numbers that hold a mask: a bit for each id."""
    return -(-vocabulary // 32)


def _packed(masks: NDArray[np.bool_]) -> Int32:
    wide = np.zeros((len(masks), 32 * _words(masks.shape[1])), np.bool_)
    wide[:, : masks.shape[1]] = masks
    return np.packbits(wide, axis=1).reshape(-1).view(np.int32)


def _unpacked(numbers: Int32, masks: int, vocabulary: int) -> NDArray[np.bool_]:
    bits = numbers.view(np.uint8).reshape(masks, 4 * _words(vocabulary))
    return np.unpackbits(bits, axis=1, count=vocabulary).view(np.bool_)
