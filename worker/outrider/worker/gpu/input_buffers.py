"""Input buffers of passes: rows, KV moves and sampling settings in one host array, sent in one
copy.

Everything is padded to buckets: by rows that see nothing and write no KV, groups without rows, and
moves from slot -1. A pass by the vendor's library has one bucket, in which a row's number follows
from its position. Leaves the time of copies to `transfers`, the graph of a bucket to `model`.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from outrider.kernels.gpu.attention import DEEPEST
from outrider.kernels.gpu.attention_inputs import ContextRows, groups_of
from outrider.kernels.gpu.heads import RowPlaces
from outrider.kernels.jit.compiled import njit
from outrider.kernels.jit.handle import Handle, handle
from outrider.worker.gpu.buckets import MOVES, bucket, group_bucket, up_to
from outrider.worker.gpu.input_layout import input_shapes, places_of, sampling_columns
from outrider.worker.gpu.staged_fields import PassFields
from outrider.worker.gpu.transfers import Transfers, copies_for
from outrider.worker.kv.block_pool import Int32
from outrider.worker.model.rows import CHUNK, Rows

Host = dict[str, NDArray[Any]]
"""Fields of a host buffer by name."""
NO_MOVE = -1
NO_SLOT = -1
compiled_groups = njit()(groups_of)


class InputShape(NamedTuple):
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
        self._passes = [
            handle(PassFields(*(host[name] for name in PassFields._fields))) for host in self._hosts
        ]
        self._buckets = up_to(rows)
        self._group_rows = group_rows

    def stage(
        self, rows: Rows, moves: tuple[Int32, Int32], settings: NDArray[np.void] | None
    ) -> InputShape:
        """Send a pass to the device, with at most 512 moves.

        `settings`: [outputs] of `SETTINGS`.
        """
        deepest, outputs = rows.ancestors.shape[1], len(rows.outputs)
        if deepest > DEEPEST:
            raise ValueError(f"ancestors: {deepest} of a row, at most {DEEPEST}")
        index, group_rows = self.copies.next_host(), self._group_rows
        padded = CHUNK if rows.by_library else bucket(rows.count, self._buckets)
        padded_outputs = bucket(outputs, self._buckets) if outputs else 0
        padded_moves = bucket(len(moves[0]), MOVES) if len(moves[0]) else 0
        groups = write_pass(
            self._passes[index],
            (padded, padded_outputs, padded_moves, group_rows),
            int(rows.positions[0]) % CHUNK if rows.by_library else 0,
            moves,
            *(rows.tokens, rows.positions, rows.slots, rows.sequence, rows.prefix, rows.depth),
            *(rows.ancestors, rows.outputs, rows.tables),
        )
        if settings is not None:
            host = self._hosts[index]
            following = rows.positions[rows.outputs] + 1
            columns = {**sampling_columns(settings), "sampled_at": following}
            for name, values in columns.items():
                host[name][:outputs] = values
                host[name][outputs:padded_outputs] = 0
        sequences = len(rows.tables)
        self.copies.send(index, self._tables.start + sequences * self._tables.shape[1])
        most_groups = CHUNK // group_rows if rows.by_library else group_bucket(groups, padded)
        return InputShape(padded, most_groups, padded_outputs, padded_moves)

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


@njit()
def write_pass(
    fields: Handle[PassFields],
    sizes: tuple[int, int, int, int],
    first: int,
    moves: tuple[Int32, Int32],
    tokens: Int32,
    positions: Int32,
    slots: Int32,
    sequence: Int32,
    prefix: Int32,
    depth: Int32,
    ancestors: Int32,
    outputs: Int32,
    tables: Int32,
) -> int:
    """Write a pass's moves and the fields of its `Rows`; return the number of its groups.

    `sizes`: rows, outputs and moves with their padding, and rows of a group; `first`: number of the
    first row, behind padding. The vendor's library gets the row of position p as row p % CHUNK, as
    its sums may depend on that.
    """
    to, (padded, padded_outputs, padded_moves, group_rows) = fields.value, sizes
    end, deepest = first + tokens.shape[0], ancestors.shape[1]
    _put(to.tokens[:padded], first, tokens, 0)
    _put(to.positions[:padded], first, positions, 0)
    _put(to.slots[:padded], first, slots, NO_SLOT)
    _put(to.sequence[:padded], first, sequence, 0)
    _put(to.prefix[:padded], first, prefix, 0)
    _put(to.depth[:padded], first, depth, 0)
    to.ancestors[first:end, :deepest] = ancestors
    _put(to.outputs[:padded_outputs], 0, outputs + np.int32(first), 0)
    _put(to.sources[:padded_moves], 0, moves[0], NO_MOVE)
    _put(to.destinations[:padded_moves], 0, moves[1], 0)
    to.tables[: tables.shape[0], : tables.shape[1]] = tables
    groups = compiled_groups(sequence, prefix + depth, group_rows)
    count = groups.shape[0]
    to.groups[:count], to.groups[count:padded] = groups, 0
    to.groups[:count, 0] += first
    return int(count)


@njit()
def _put(place: Int32, first: int, values: Int32, padding: int) -> None:
    """Fill a padded field, with its values from `first` on."""
    end = first + values.shape[0]
    place[:first], place[first:end], place[end:] = padding, values, padding
