"""The compiled loop of plain decoding: one sequence's passes, on and on without the interpreter.

It is made of the compiled pieces that a step in Python calls one by one, with that step as its
reference; why it returns is decided in `reason_to_return`, or by what local sources find. It writes
down each pass, for `target/pass_run` to book as a step would. Leaves what may run so to
`target/scheduler` (docs/decisions/0028).
"""

import enum
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from outrider.kernels.cpu.clock import monotonic
from outrider.kernels.cpu.collectives import SharedSums
from outrider.kernels.cpu.forward import Batch
from outrider.kernels.cpu.pass_threads import Crew, run_together
from outrider.kernels.jit.atomics import read
from outrider.kernels.jit.by_address import ByAddress
from outrider.kernels.jit.compiled import njit
from outrider.kernels.jit.handle import Handle
from outrider.kernels.sampling.filters import SamplingTuple
from outrider.kernels.sampling.gumbel_max import sample_by_address
from outrider.worker.target.tree_pass import (
    Hunt,
    TreeHandle,
    found_rows_that_pay,
    settle,
    write_rows,
)
from outrider.worker.tree.growth import Ints
from outrider.worker.tree.mirror_table import ROOT_POSITION
from outrider.worker.tree.walk import contains

MOST_PASSES = 32
"""Passes of one run: so long at most counters and the switch of drafting wait for what it saw."""


class Reason(enum.IntEnum):
    """Reason to return to Python after a pass."""

    END = 1
    """The answer ends, or the model's logits hold no number."""
    MESSAGE = 2
    """There is a message of the server or of a peer."""
    STREAM = 3
    """Tokens are due at the client."""
    BLOCK = 4
    """A block of KV is full, to be shared, or the next pass may need another."""
    BOOKS = 5
    """`MOST_PASSES` have run, or as many as were asked for."""
    SOURCE = 6
    """A local source has found draft tokens that pay."""
    DRAFT = 7
    """A serial draft cannot go on so (`launch/root_loop`)."""


GO_ON = 0
END, MESSAGE, STREAM, BLOCK, BOOKS, SOURCE, DRAFT = (int(reason) for reason in Reason)
NO_TOKENS = np.empty(0, np.int32)


class PassLog(NamedTuple):
    """Passes of one run; [MOST_PASSES] each."""

    began: NDArray[np.float64]
    ended: NDArray[np.float64]
    """Before it is settled."""
    token: Ints
    """That it committed; -1: none."""

    @classmethod
    def empty(cls) -> "PassLog":
        """Return a log of no pass."""
        began, ended = (np.zeros(MOST_PASSES, np.float64) for _ in range(2))
        return cls(began, ended, np.zeros(MOST_PASSES, np.int32))


class LoopFunctions(NamedTuple):
    """Compiled functions that a run calls by their address."""

    sample: ByAddress
    settle: ByAddress
    found_rows_that_pay: ByAddress

    @classmethod
    def of(cls, tree: TreeHandle, hunt: Hunt) -> "LoopFunctions":
        """Return them for arguments of these types."""
        return cls(
            sample_by_address(),
            ByAddress(settle, tree, NO_TOKENS, NO_TOKENS, 0),
            ByAddress(found_rows_that_pay, tree, hunt, 0),
        )


class LoopTables(NamedTuple):
    """What a sequence's passes read and write."""

    tree: TreeHandle
    crew: Handle[Crew]
    model: Any
    """Handle of `kernels.cpu.forward.PassModel`."""
    shared: SharedSums
    sampling: Handle[SamplingTuple]
    arrived: NDArray[np.int64]
    """[1] not 0 while there may be a message."""
    log: PassLog
    call: LoopFunctions


class Stops(NamedTuple):
    """Bounds of one run."""

    vocabulary: int
    """Logits that are tokens."""
    most_tokens: int
    """Committed tokens at which the answer ends;"""
    block_tokens: int
    """those at which its block table wants something."""
    sent_at: float
    """When the client was last sent tokens."""
    stream_seconds: float
    """Least time from then to the next."""
    passes: int
    """At most `MOST_PASSES`."""


@njit()
def decode(
    loop: Handle[LoopTables], block_table: Ints, stops: Stops, hunt: Hunt
) -> tuple[int, int]:
    """Run passes until there is a reason to return; return their number, and that `Reason`."""
    tables, log, passes, reason = loop.value, loop.value.log, 0, GO_ON
    while reason == GO_ON:
        log.began[passes] = monotonic()
        sampled = _sampled(tables, block_table, stops.vocabulary)
        log.ended[passes] = monotonic()
        log.token[passes] = sampled[0]
        limit = stops.most_tokens - _length(tables)
        tables.call.settle(tables.tree, sampled[:0], sampled, limit)
        passes += 1
        reason = reason_to_return(tables, stops, passes)
        remaining = stops.most_tokens - _length(tables)
        if reason == GO_ON and tables.call.found_rows_that_pay(tables.tree, hunt, remaining):
            reason = SOURCE
    return passes, reason


@njit(inline="always")
def reason_to_return(tables: LoopTables, stops: Stops, passes: int) -> int:
    """Return why no further pass may follow the last of so many, or `GO_ON`."""
    token, length = tables.log.token[passes - 1], _length(tables)
    if token < 0 or length >= stops.most_tokens or contains(tables.tree.value.ends, token):
        return END
    if read(tables.arrived, 0) != 0:
        return MESSAGE
    if tables.log.ended[passes - 1] - stops.sent_at >= stops.stream_seconds:
        return STREAM
    if length >= stops.block_tokens:
        return BLOCK
    return BOOKS if passes >= stops.passes else GO_ON


@njit(inline="always")
def _sampled(tables: LoopTables, block_table: Ints, vocabulary: int) -> Ints:
    """Run a pass of the root alone; return int32[1], the token sampled after it."""
    sampled = np.zeros(1, np.int32)
    write_rows(tables.tree, sampled[:0], block_table)
    out, zero = tables.tree.value.out, np.zeros(1, np.int32)
    rows = Batch(
        out.tokens[:1],
        out.positions[:1],
        out.slots[:1],
        zero,
        out.prefix[:1],
        out.ancestors[:1],
        out.depth[:1],
        zero,
        block_table.reshape(1, -1),
        zero[:0],
        zero[:0],
    )
    run_together(tables.crew, tables.model, rows, tables.shared)
    following = np.full(1, out.positions[0] + 1, np.int64)
    logits = tables.model.value.buffers.logits[:1]
    if logits.shape[1] == vocabulary:
        tables.call.sample(logits, following, tables.sampling.value, sampled)
    else:
        tokens = np.ascontiguousarray(logits[:, :vocabulary])  # the rest is padding
        tables.call.sample(tokens, following, tables.sampling.value, sampled)
    return sampled


@njit(inline="always")
def _length(tables: LoopTables) -> int:
    """Return the number of committed tokens."""
    return int(tables.tree.value.mirror.numbers[ROOT_POSITION]) + 1
