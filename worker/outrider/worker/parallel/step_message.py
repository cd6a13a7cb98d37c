"""What the leading rank tells the others: one flat int32 array a step.

Pure. A header of fixed size, then KV to be moved, then the rows of a pass: numbers only, so that
nothing is pickled between two passes. How arrays travel is `group`'s.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from outrider.worker.model.rows import Rows

Int32 = NDArray[np.int32]
Move = tuple[Int32, Int32]
"""Slots of the pool: sources, destinations."""

HEADER = 11
"""Numbers that every order begins with: its length, rows, outputs, ancestors a row, sequences,
blocks a sequence, moves, what is wanted (`KINDS`), of which vocabulary, and two numbers more of
that: children and masks of guesses; variant and logits of draws on a device."""
STOP = 0
"""Rows of the order that ends a follower's loop."""


SAMPLE_FIELDS = np.dtype([("seed", np.uint64), ("temperature", np.float64), ("choice", np.int64)])
"""How the token after one row with output is drawn, without filters."""


@dataclass(frozen=True, slots=True)
class SampleSpec:
    """What ranks draw among themselves, instead of sending logits."""

    vocabulary: int
    """Ids that may be drawn; further columns are padding."""
    each: NDArray[np.void]  # [outputs] of DRAW


CHILD_FIELDS = np.dtype(
    [
        *(("seed", np.uint64), ("temperature", np.float64), ("choice", np.int64)),
        *(("error_scale", np.float64), ("mask", np.int64)),
    ]
)
"""How the children of one row with output are scored, without filters; `mask`: which, or -1."""


@dataclass(frozen=True, slots=True)
class ChildSpec:
    """What ranks of a draft score among themselves, instead of sending logits."""

    vocabulary: int
    """Of the target."""
    children: int
    """Of each row, at most."""
    each: NDArray[np.void]  # [outputs] of GUESS
    masks: NDArray[np.bool_]  # [masks, vocabulary] ids that must not be guessed


DEVICE_SAMPLE_FIELDS = np.dtype(
    [
        *(("temperature", np.float32), ("top_k", np.int32), ("top_p", np.float64)),
        *(("floor", np.float32), ("seed", np.int64), ("choice", np.int32)),
        ("drawn_at", np.int32),
    ]
)
"""How the token after one row with output is drawn on devices, with filters."""


@dataclass(frozen=True, slots=True)
class DeviceSampleSpec:
    """What ranks on devices draw among themselves."""

    vocabulary: int
    """Ids that may be drawn; further columns are padding."""
    variant: int
    """What the draw has to do; not 0."""
    logits: bool
    """Whether the leader wants to see them too."""
    each: NDArray[np.void]  # [outputs] of DEVICE_DRAW


Wanted = SampleSpec | ChildSpec | DeviceSampleSpec | None
"""None: the logits."""
LOGITS, DRAWS, GUESSES, DEVICE_DRAWS = range(4)
"""Kinds of what is wanted."""


@dataclass(frozen=True, slots=True)
class StepMessage:
    """KV to move, then rows to run; without rows: the end."""

    moves: Sequence[Move]
    """In this order: one may read what another wrote."""
    rows: Rows | None
    wanted: Wanted = None


def encode(order: StepMessage) -> Int32:
    """The order as one array; its length is its first number."""
    header = np.zeros(HEADER, np.int32)
    payload: list[Int32] = []
    for sources, destinations in order.moves:
        payload += [np.array([len(sources)], np.int32), sources, destinations]
    rows = order.rows
    if rows is not None:
        header[1:6] = rows.count, len(rows.outputs), rows.ancestors.shape[1], *rows.tables.shape
        payload += [
            *(rows.tokens, rows.positions, rows.slots, rows.sequence, rows.prefix, rows.depth),
            *(rows.outputs, rows.ancestors.reshape(-1), rows.tables.reshape(-1)),
        ]
    match order.wanted:
        case SampleSpec(vocabulary, each):
            header[7:] = DRAWS, vocabulary, 0, 0
            payload.append(each.view(np.int32))
        case ChildSpec(vocabulary, children, each, masks):
            header[7:] = GUESSES, vocabulary, children, len(masks)
            payload += [each.view(np.int32), _packed(masks)]
        case DeviceSampleSpec(vocabulary, variant, logits, each):
            header[7:] = DEVICE_DRAWS, vocabulary, variant, logits
            payload.append(each.view(np.int32))
    header[6] = len(order.moves)
    header[0] = HEADER + sum(map(len, payload))
    return np.concatenate([header, *payload], dtype=np.int32)


def decode(numbers: Int32) -> StepMessage:
    """The inverse of `encode`; arrays are views of `numbers`."""
    count, outputs, deepest, sequences, blocks, moves, *wanted = map(int, numbers[1:HEADER])
    at = HEADER

    def take(size: int) -> Int32:
        nonlocal at
        at += size
        return numbers[at - size : at]

    lengths = (int(take(1)[0]) for _ in range(moves))
    order_moves = [(take(length), take(length)) for length in lengths]
    if count == STOP:
        return StepMessage(order_moves, None)
    tokens, positions, slots, sequence, prefix, depth = (take(count) for _ in range(6))
    rows = Rows(
        tokens=tokens,
        positions=positions,
        slots=slots,
        sequence=sequence,
        prefix=prefix,
        depth=depth,
        outputs=take(outputs),
        ancestors=take(count * deepest).reshape(count, deepest),
        tables=take(sequences * blocks).reshape(sequences, blocks),
    )
    return StepMessage(order_moves, rows, _wanted(take, outputs, *wanted))


def _wanted(
    take: Callable[[int], Int32], outputs: int, kind: int, vocabulary: int, one: int, other: int
) -> Wanted:
    """What follows the rows; the numbers are the header's last."""
    if kind == DRAWS:
        return SampleSpec(vocabulary, _records(take, outputs, SAMPLE_FIELDS))
    if kind == GUESSES:
        each = _records(take, outputs, CHILD_FIELDS)
        masks = _unpacked(take(other * _words(vocabulary)), other, vocabulary)
        return ChildSpec(vocabulary, one, each, masks)
    if kind == DEVICE_DRAWS:
        return DeviceSampleSpec(
            vocabulary, one, bool(other), _records(take, outputs, DEVICE_SAMPLE_FIELDS)
        )
    return None


def _records(take: Callable[[int], Int32], count: int, kind: np.dtype) -> NDArray[np.void]:
    """So many of `kind`; a copy is aligned."""
    return take(count * kind.itemsize // 4).copy().view(kind)


def _words(vocabulary: int) -> int:
    """Numbers that hold a mask: a bit for each id."""
    return -(-vocabulary // 32)


def _packed(masks: NDArray[np.bool_]) -> Int32:
    wide = np.zeros((len(masks), 32 * _words(masks.shape[1])), np.bool_)
    wide[:, : masks.shape[1]] = masks
    return np.packbits(wide, axis=1).reshape(-1).view(np.int32)


def _unpacked(numbers: Int32, masks: int, vocabulary: int) -> NDArray[np.bool_]:
    bits = numbers.view(np.uint8).reshape(masks, 4 * _words(vocabulary))
    return np.unpackbits(bits, axis=1, count=vocabulary).view(np.bool_)
