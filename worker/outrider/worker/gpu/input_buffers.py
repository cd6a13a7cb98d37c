"""Input buffers of passes: rows, KV moves and sampling settings in one host array, sent in one
copy.

Everything is padded to buckets: by rows that see nothing and write no KV, groups without rows, and
moves from slot -1. Leaves the time of copies to `transfers`, the graph of a bucket to `model`.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from outrider.kernels.gpu.attention import DEEPEST
from outrider.kernels.gpu.attention_inputs import ContextRows, groups_of
from outrider.kernels.gpu.projection import RowPlaces
from outrider.worker.gpu.buckets import MOVES, bucket, group_bucket, up_to
from outrider.worker.gpu.input_layout import input_shapes, places_of, sampling_columns
from outrider.worker.gpu.transfers import Transfers, copies_for
from outrider.worker.kv.block_pool import Int32
from outrider.worker.model.rows import Rows

Host = dict[str, NDArray[Any]]
"""Fields of a host buffer by name."""
NO_MOVE = -1
NO_SLOT = -1


@dataclass(frozen=True, slots=True)
class InputShape:
    """Buckets of a staged pass, on which its graphs depend."""

    rows: int
    groups: int
    outputs: int
    """0: no logits are wanted."""
    moves: int
    """0: none."""


class InputBuffers:
    """Buffers of all passes of a model."""

    def __init__(
        self, rows: int, sequences: int, blocks: int, group_rows: int, device: str
    ) -> None:
        """`group_rows`: rows that share a tile of queries."""
        places = places_of(input_shapes(rows, sequences, blocks))
        self._tables = places["tables"]
        self.copies: Transfers = copies_for(self._tables.stop, device)
        self.device: dict[str, Tensor] = {
            name: place.device(self.copies.static) for name, place in places.items()
        }
        self._hosts: list[Host] = [
            {name: place.host(host.numpy()) for name, place in places.items()}
            for host in self.copies.hosts
        ]
        self._buckets = up_to(rows)
        self._group_rows = group_rows

    def stage(
        self, rows: Rows, moves: tuple[Int32, Int32], settings: NDArray[np.void] | None
    ) -> InputShape:
        """Send a pass to the device, with at most 512 moves.

        `settings`: [outputs] of `SETTINGS`.
        """
        index = self.copies.next_host()
        host = self._hosts[index]
        shape = InputShape(
            rows=bucket(rows.count, self._buckets),
            groups=self._put_groups(host, rows),
            outputs=bucket(len(rows.outputs), self._buckets) if len(rows.outputs) else 0,
            moves=bucket(len(moves[0]), MOVES) if len(moves[0]) else 0,
        )
        self._put_rows(host, rows, shape)
        put(host["sources"][: shape.moves], moves[0], NO_MOVE)
        put(host["destinations"][: shape.moves], moves[1], 0)
        if settings is not None:
            following = rows.positions[rows.outputs] + 1
            columns = {**sampling_columns(settings), "sampled_at": following}
            for name, values in columns.items():
                put(host[name][: shape.outputs], values, 0)
        sequences, blocks = rows.tables.shape
        host["tables"][:sequences, :blocks] = rows.tables
        self.copies.send(index, self._tables.start + sequences * self._tables.shape[1])
        return shape

    def places(self, rows: int) -> RowPlaces:
        """Return positions and slots of the first `rows` rows."""
        return RowPlaces(self.device["positions"][:rows], self.device["slots"][:rows])

    def context(self, rows: int, groups: int) -> ContextRows:
        """Return the context of the first `rows` rows."""
        d = self.device
        return ContextRows(
            d["sequence"][:rows],
            d["prefix"][:rows],
            d["ancestors"][:rows],
            d["depth"][:rows],
            d["tables"],
            d["groups"][:groups],
        )

    def _put_groups(self, host: Host, rows: Rows) -> int:
        """Write the groups; returns the bucket of their number."""
        groups = groups_of(rows.sequence, rows.prefix + rows.depth, self._group_rows)
        padded = group_bucket(len(groups), bucket(rows.count, self._buckets))
        put(host["groups"][:padded], groups, 0)
        return padded

    def _put_rows(self, host: Host, rows: Rows, shape: InputShape) -> None:
        deepest = rows.ancestors.shape[1]
        if deepest > DEEPEST:
            raise ValueError(f"ancestors: {deepest} of a row, at most {DEEPEST}")
        for name in ("tokens", "positions", "sequence", "prefix", "depth"):
            put(host[name][: shape.rows], getattr(rows, name), 0)
        put(host["slots"][: shape.rows], rows.slots, NO_SLOT)
        host["ancestors"][: rows.count, :deepest] = rows.ancestors
        put(host["outputs"][: shape.outputs], rows.outputs, 0)


def put(place: NDArray[Any], values: NDArray[Any], padding: int) -> None:
    """Fill a padded field."""
    place[: len(values)] = values
    place[len(values) :] = padding
