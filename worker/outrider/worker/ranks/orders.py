"""What the leading rank tells the others: one flat int32 array a step.

Pure. A header of fixed size, then KV to be moved, then the rows of a pass: numbers only, so that
nothing is pickled between two passes. How arrays travel is `group`'s.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from outrider.worker.rows import Rows

Int32 = NDArray[np.int32]
Move = tuple[Int32, Int32]
"""Slots of the pool: sources, destinations."""

HEADER = 8
"""Numbers that every order begins with: its length, rows, outputs, ancestors a row, sequences,
blocks a sequence, moves, and tokens that may be drawn (0: logits are wanted)."""
STOP = 0
"""Rows of the order that ends a follower's loop."""


DRAW = np.dtype([("seed", np.uint64), ("temperature", np.float64), ("choice", np.int64)])
"""How the token after one row with output is drawn, without filters."""


@dataclass(frozen=True, slots=True)
class Draws:
    """What ranks draw among themselves, instead of sending logits."""

    vocabulary: int
    """Ids that may be drawn; further columns are padding."""
    each: NDArray[np.void]  # [outputs] of DRAW


@dataclass(frozen=True, slots=True)
class Order:
    """KV to move, then rows to run; without rows: the end."""

    moves: Sequence[Move]
    """In this order: one may read what another wrote."""
    rows: Rows | None
    draws: Draws | None = None
    """None: the logits are wanted."""


def encode(order: Order) -> Int32:
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
    if order.draws is not None:
        header[7] = order.draws.vocabulary
        payload.append(order.draws.each.view(np.int32))
    header[6] = len(order.moves)
    header[0] = HEADER + sum(map(len, payload))
    return np.concatenate([header, *payload], dtype=np.int32)


def decode(numbers: Int32) -> Order:
    """The inverse of `encode`; arrays are views of `numbers`."""
    count, outputs, deepest, sequences, blocks, moves, drawn = (int(n) for n in numbers[1:HEADER])
    at = HEADER

    def take(size: int) -> Int32:
        nonlocal at
        at += size
        return numbers[at - size : at]

    lengths = (int(take(1)[0]) for _ in range(moves))
    order_moves = [(take(length), take(length)) for length in lengths]
    if count == STOP:
        return Order(order_moves, None)
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
    if not drawn:
        return Order(order_moves, rows)
    each = take(outputs * DRAW.itemsize // 4).copy().view(DRAW)  # a copy is aligned
    return Order(order_moves, rows, Draws(drawn, each))
