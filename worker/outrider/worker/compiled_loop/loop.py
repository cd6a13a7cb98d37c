"""The compiled loop: one sequence's verify passes, one after the other without the interpreter.

At each root local sources look for draft tokens, a draft in the same process runs the passes that
are waited for, and the target verifies what pays. Without a draft and sources this is plain
decoding, and the draft's part is not compiled. The loop is made of the compiled pieces that steps
in Python call one by one, with those steps as its reference. It writes down each pass, for `run` to
apply. Leaves what may run so to `run` (docs/decisions/0028).
"""

import enum
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from outrider.contract.settings import MAX_DEPTH
from outrider.contract.sources import SOURCES
from outrider.kernels.cpu.clock import monotonic
from outrider.kernels.cpu.collectives import SharedSums
from outrider.kernels.cpu.forward import Batch
from outrider.kernels.cpu.pass_threads import Team, run_together
from outrider.kernels.jit.atomics import read
from outrider.kernels.jit.by_address import ByAddress
from outrider.kernels.jit.compiled import njit
from outrider.kernels.jit.handle import Handle
from outrider.kernels.sampling.draft_scores import ScoreRules, score_rows
from outrider.kernels.sampling.filters import SamplingTuple
from outrider.kernels.sampling.gumbel_max import sample_by_address
from outrider.kernels.sampling.philox import NoiseRows
from outrider.worker.draft.session import BRANCH, DraftTerms
from outrider.worker.kv.block_pool import BLOCK
from outrider.worker.speculation.planner import best_count
from outrider.worker.speculation.wait import MOST_GROWTHS, worth_of_growth
from outrider.worker.target.tree_pass import (
    SearchTerms,
    TreeHandle,
    candidates,
    search,
    settle,
    write_rows,
)
from outrider.worker.tree import draft_table, mirror_table, reroot
from outrider.worker.tree.draft_ids import read as read_ids
from outrider.worker.tree.draft_rows import OUTPUTS, ROWS, TREES, RowArrays
from outrider.worker.tree.draft_table import CACHED, LAST_ID, NODES, SHIFT, DraftTables
from outrider.worker.tree.growth import Floats, Growth, Ids, Ints
from outrider.worker.tree.mirror_table import COUNT, ROOT_POSITION
from outrider.worker.tree.walk import contains

MOST_ROOTS = 32
"""Roots of one run: so long at most counters and the switch of drafting wait for what it saw."""


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
    ROOTS = 5
    """As many passes as were asked for have run."""
    DRAFT = 6
    """The draft cannot go on so."""


GO_ON = 0
END, MESSAGE, STREAM, BLOCK_WANTED, ROOTS, DRAFT = (int(reason) for reason in Reason)
NO_TOKENS = np.empty(0, np.int32)


class RootLog(NamedTuple):
    """Roots of one run, [MOST_ROOTS] each; `draft_rows` to `sent` by the draft's passes too."""

    draft_rows: Ids
    """Rows of each pass of the draft."""
    draft_prefills: Ids
    """Rows of committed tokens in each pass of the draft."""
    draft_began: NDArray[np.float64]
    """Time at which each pass of the draft began."""
    draft_ended: NDArray[np.float64]
    """Time at which each pass of the draft had ended, and the tree was ranked."""
    sent: NDArray[np.bool_]
    """True where the tree grew by a pass of the draft."""
    grown: Ids
    """[MOST_ROOTS + 1] growths that each root's tree had as it began, the next root's too."""
    passes: Ids
    """Passes of the draft at each root."""
    first: NDArray[np.float64]
    """Time at which each root began."""
    began: NDArray[np.float64]
    """Time at which the target's pass began."""
    ended: NDArray[np.float64]
    candidates: Ids
    """Nodes that rows were selected from."""
    live: Ids
    """Nodes of the mirror as rows were selected."""
    nodes: Ids
    """Node rows."""
    first_token: Ids
    """Likeliest token after the root, if its node is among the rows; -1: it is not."""
    accepted: Ids
    tokens: Ids
    """Committed tokens; 0: no logit was a number."""
    committed: Ints
    """[roots, deepest + 1]"""
    survived: NDArray[np.bool_]
    """True where the new root was in the mirror."""
    followed: NDArray[np.bool_]
    """True where the new root was in the draft's tree."""
    surplus: NDArray[np.float64]
    """`first_child_surplus`."""
    source_rows: Ids
    """[roots, sources]"""
    source_accepted: Ids

    @classmethod
    def empty(cls) -> "RootLog":
        """Return a log of no root."""
        grown = (MOST_ROOTS, MOST_GROWTHS)
        ids = [np.zeros(MOST_ROOTS, np.int64) for _ in range(7)]
        passes, candidates, live, nodes, first_token, accepted, tokens = ids
        first, began, ended, surplus = (np.zeros(MOST_ROOTS) for _ in range(4))
        source_rows, source_accepted = (
            np.zeros((MOST_ROOTS, len(SOURCES)), np.int64) for _ in range(2)
        )
        return cls(
            np.zeros(grown, np.int64),
            np.zeros(grown, np.int64),
            np.zeros(grown),
            np.zeros(grown),
            np.zeros(grown, np.bool_),
            np.zeros(MOST_ROOTS + 1, np.int64),
            passes,
            first,
            began,
            ended,
            candidates,
            live,
            nodes,
            first_token,
            accepted,
            tokens,
            np.zeros((MOST_ROOTS, MAX_DEPTH + 1), np.int32),
            np.zeros(MOST_ROOTS, np.bool_),
            np.zeros(MOST_ROOTS, np.bool_),
            surplus,
            source_rows,
            source_accepted,
        )


class Moves(NamedTuple):
    """Moves of KV that the next pass has to make, by slots of the pool."""

    sources: Ints
    destinations: Ints
    waiting: Ids
    """[1] how many."""

    @classmethod
    def empty(cls, most: int) -> "Moves":
        """Return none, with room for so many."""
        return cls(np.zeros(most, np.int32), np.zeros(most, np.int32), np.zeros(1, np.int64))

    def put(self, sources: Ints, destinations: Ints) -> None:
        """Replace them."""
        count = self.waiting[0] = len(sources)
        self.sources[:count], self.destinations[:count] = sources, destinations

    def take(self) -> tuple[Ints, Ints]:
        """Return sources and destinations of all."""
        count = self.waiting.item(0)
        return self.sources[:count], self.destinations[:count]


class Side(NamedTuple):
    """What runs the passes of one role."""

    team: Handle[Team]
    model: Any
    """Handle of `kernels.cpu.forward.PassModel`."""
    moves: Moves


class RootFunctions(NamedTuple):
    """Compiled functions of the target that a run calls by their address."""

    search: ByAddress
    candidates: ByAddress
    sample: ByAddress
    settle: ByAddress

    @classmethod
    def of(cls, tree: TreeHandle) -> "RootFunctions":
        """Return them for arguments of these types."""
        return cls(
            ByAddress(search, tree, 0, 0, 0),
            ByAddress(candidates, tree, 0, 0, 0),
            sample_by_address(),
            ByAddress(settle, tree, NO_TOKENS, NO_TOKENS, 0),
        )


def score_by_address(rules: Handle[ScoreRules], noise: Handle[NoiseRows]) -> ByAddress:
    """Return `score_rows` for arguments of these types."""
    logits, logprobs = (np.empty((0, 0), np.float32) for _ in range(2))
    positions, tokens = NO_TOKENS, NO_TOKENS.reshape(0, 0)
    return ByAddress(score_rows, logits, positions, rules, noise, tokens, logprobs)


class RootTables(NamedTuple):
    """Arrays of one sequence in the target, which its passes read and write."""

    tree: TreeHandle
    side: Side
    shared: SharedSums
    sampling: Handle[SamplingTuple]
    vocabulary: int
    """Logits that are tokens."""
    arrived: NDArray[np.int64]
    """[1] not 0 while there may be a message."""
    log: Handle[RootLog]
    call: RootFunctions


class GrowthTables(NamedTuple):
    """Arrays of one sequence in the draft, which its passes read and write."""

    tree: Handle[DraftTables]
    tokens: Ints
    """Committed tokens as the draft's ids."""
    rows: Handle[RowArrays]
    side: Side
    noise: Handle[NoiseRows]
    allowed: NDArray[np.bool_]
    """[the target's vocabulary] ids that may be draft tokens."""
    vocabulary: int
    """Logits that are tokens."""
    score_rows: ByAddress


class RootTerms(NamedTuple):
    """Bounds of one run, and what is taken for known while it goes on."""

    search: SearchTerms
    """Terms of local sources, and which node rows pay."""
    most_tokens: int
    """Committed tokens at which the answer ends."""
    block_tokens: int
    """Committed tokens at which the block table wants something."""
    sent_at: float
    """Time at which the client was last sent tokens."""
    stream_seconds: float
    """Least time from then to the next."""
    roots: int
    """Most passes; at most `MOST_ROOTS`."""
    local: bool
    """True if local sources look for nodes."""
    grown: int
    """Growths that the first root has had."""


class GrowthTerms(NamedTuple):
    """Bounds of the draft's part of one run."""

    block_table: Ints
    """Block table of the draft's KV, int32[blocks]."""
    rules: Handle[ScoreRules]
    session: DraftTerms
    price: float
    """Tokens that a growth has to be worth, for the time that it takes."""
    full: int
    """Nodes from which on a draft's tree is not waited for."""
    new_nodes: int
    """Nodes by which the draft's tree may grow at one root."""


@njit()
def run_roots(
    loop: Handle[RootTables],
    block_table: Ints,
    terms: RootTerms,
    growth: Handle[GrowthTables] | None,
    growth_terms: GrowthTerms | None,
) -> tuple[int, int]:
    """Run passes until there is a reason to return; return their number, and that reason.

    `block_table` int32[blocks] of the target's KV. `growth` and `growth_terms`: None without a
    draft.
    """
    tables, log, roots, reason = loop.value, loop.value.log.value, 0, GO_ON
    log.grown[0] = terms.grown
    while reason == GO_ON:
        count = _look(tables, terms, roots)
        if growth is not None and not _grow(
            tables, growth.value, terms, growth_terms, roots, count
        ):
            reason = DRAFT
        _verify(tables, block_table, terms, roots)
        if growth is not None and log.tokens[roots]:
            log.grown[roots + 1] = _follow(tables, growth.value, growth_terms, roots)
            if _needs_a_step(tables, growth.value, growth_terms):
                reason = DRAFT
        roots += 1
        reason = _reason_to_return(tables, terms, roots, reason)
    return roots, reason


@njit(inline="always")
def _look(tables: RootTables, terms: RootTerms, root: int) -> int:
    """Let local sources look for nodes; return the candidates that may run."""
    log, limits = tables.log.value, terms.search
    log.first[root], log.passes[root] = monotonic(), 0
    if terms.local:
        depth = min(limits.depth, terms.most_tokens - _length(tables) - 1)
        tables.call.search(tables.tree, limits.sources, limits.nodes, depth)
    return int(_rank(tables, terms, root))


@njit(inline="always")
def _grow(
    tables: RootTables,
    growth: GrowthTables,
    terms: RootTerms,
    own: GrowthTerms,
    root: int,
    count: int,
) -> bool:
    """Let the tree grow by a pass of the draft after the other while that pays; return False where
    the draft has nothing to run. `count`: candidates that may run now."""
    log = tables.log.value
    for at in range(MOST_GROWTHS - log.grown[root]):
        if growth.tree.value.state[NODES] >= own.full or not _pays(tables, terms, own, count):
            return True
        log.draft_began[root, at] = monotonic()
        rows, prefill, sent = _draft_pass(tables, growth, own)
        if rows == 0:
            return False
        log.draft_rows[root, at], log.draft_prefills[root, at] = rows, prefill
        log.sent[root, at] = sent
        log.passes[root] = at + 1
        count = _rank(tables, terms, root)
        log.draft_ended[root, at] = monotonic()
    return True


@njit(inline="always")
def _pays(tables: RootTables, terms: RootTerms, own: GrowthTerms, count: int) -> bool:
    """True if the next growth is worth its time; `count`: candidates that may run now."""
    if terms.most_tokens - _length(tables) <= 1:  # no node could add a token
        return False
    limits, out = terms.search, tables.tree.value.out
    reach, more = out.reach[:count], out.next_reaches.reshape(-1, 1)
    return bool(worth_of_growth(reach, more, limits.costs, limits.rate, own.price) > own.price)


@njit(inline="always")
def _rank(tables: RootTables, terms: RootTerms, root: int) -> int:
    """Rank the candidates; write down how many of the best pay, and return how many may run."""
    log, limits, out = tables.log.value, terms.search, tables.tree.value.out
    limit, count = terms.most_tokens - _length(tables), 0
    if limits.sources:
        count = tables.call.candidates(tables.tree, limit, limits.depth, limits.sources)
    count = log.candidates[root] = min(count, limits.nodes)
    log.nodes[root] = best_count(out.reach[:count], limits.costs, limits.rate)
    return count


@njit(inline="always")
def _draft_pass(
    tables: RootTables, growth: GrowthTables, own: GrowthTerms
) -> tuple[int, int, bool]:
    """Run one pass of the draft and add its growth to both trees.

    Returns its rows, none where it has nothing to run, those of committed tokens among them, and
    True if there was growth.
    """
    state, out, terms = growth.tree.value.state, growth.rows.value, own.session
    root, prefill, sent = state[draft_table.ROOT_POSITION], 0, False
    if state[CACHED] <= root:
        prefill = draft_table.prefill_rows(
            growth.tree,
            growth.rows,
            own.block_table,
            terms.published,
            growth.tokens,
            terms.prefill_rows,
        )
    elif state[NODES] < terms.nodes_ahead:
        draft_table.leaf_rows(
            growth.tree,
            growth.rows,
            own.block_table,
            terms.published,
            terms.width,
            terms.depth,
            terms.least,
        )
    rows, outputs = out.used[ROWS], out.used[OUTPUTS]
    out.used[ROWS], out.used[OUTPUTS], out.used[TREES] = 0, 0, 0
    if rows == 0:
        return 0, 0, sent
    _run_draft(tables, growth, own.block_table, rows, outputs)
    state[CACHED] += prefill
    if outputs:
        tokens, logprobs = _children(growth, own.rules, outputs)
        draft_table.offer(
            growth.tree, out.leaf[:outputs], out.offset[:outputs], tokens, logprobs, 0.0
        )
        sent = _send(tables, growth, terms) > 0
    return rows, prefill, sent


@njit(inline="always")
def _run_draft(
    tables: RootTables, growth: GrowthTables, block_table: Ints, rows: int, outputs: int
) -> None:
    out, side = growth.rows.value, growth.side
    sources, destinations = _taken(side.moves)
    batch = Batch(
        out.token[:rows],
        out.position[:rows],
        out.slot[:rows],
        out.tree[:rows],
        out.prefix[:rows],
        out.ancestors[:rows],
        out.depth[:rows],
        out.output[:outputs],
        block_table.reshape(1, -1),
        sources,
        destinations,
    )
    run_together(side.team, side.model, batch, tables.shared)


@njit(inline="always")
def _children(growth: GrowthTables, rules: Handle[ScoreRules], outputs: int) -> tuple[Ints, Floats]:
    """Return the top children of each row with output, [outputs, branch] tokens and estimates."""
    tokens = np.empty((outputs, BRANCH), np.int32)
    logprobs = np.empty((outputs, BRANCH), np.float32)
    logits = growth.side.model.value.buffers.logits[:outputs]
    positions = growth.rows.value.sampled_at[:outputs]
    if logits.shape[1] == growth.vocabulary:
        growth.score_rows(logits, positions, rules, growth.noise, tokens, logprobs)
    else:
        own = np.ascontiguousarray(logits[:, : growth.vocabulary])  # the rest is padding
        growth.score_rows(own, positions, rules, growth.noise, tokens, logprobs)
    return tokens, logprobs


@njit(inline="always")
def _send(tables: RootTables, growth: GrowthTables, terms: DraftTerms) -> int:
    """Make nodes of the draft's best candidates, and add them to the mirror; return 1 if there are
    any, else 0.

    Raises `ValueError` for growth that a link would be closed for.
    """
    state = growth.tree.value.state
    parents, tokens, logprobs = draft_table.send(
        growth.tree, terms.nodes_ahead, terms.max_new_nodes, terms.depth
    )
    count = parents.shape[0]
    if count == 0:
        return 0
    position = state[draft_table.ROOT_POSITION] - state[SHIFT]
    grown = Growth(position, state[LAST_ID] + 1 - count, parents, tokens, logprobs)
    fault, _ = mirror_table.fault_of(grown, growth.allowed)
    if fault != mirror_table.FINE:
        raise ValueError("the draft's growth breaks the rules of a mirror")
    mirror_table.grow(tables.tree.value.mirror, grown)
    return 1


@njit(inline="always")
def _verify(tables: RootTables, block_table: Ints, terms: RootTerms, root: int) -> None:
    """Run the target's pass over the best candidates, as many as pay, and commit its tokens."""
    log, out, mirror = tables.log.value, tables.tree.value.out, tables.tree.value.mirror
    length = _length(tables)
    count, limit = log.nodes[root], terms.most_tokens - length
    selected = out.candidate[:count].copy()
    log.live[root] = mirror.numbers[COUNT]
    log.first_token[root] = mirror.nodes.token[selected[0]] if count else -1
    write_rows(tables.tree, selected, block_table)
    log.began[root] = monotonic()
    sampled = _sampled(tables, block_table, count + 1)
    log.ended[root] = monotonic()
    accepted, tokens, survived, surplus = tables.call.settle(tables.tree, selected, sampled, limit)
    log.accepted[root], log.tokens[root] = accepted, tokens
    log.survived[root], log.surplus[root] = survived, surplus
    if tokens == 0:
        return
    log.committed[root, :tokens] = out.committed[:tokens]
    log.source_rows[root], log.source_accepted[root] = out.source_rows, out.source_accepted
    if accepted and out.accepted[accepted - 1] != accepted - 1:
        for i in range(accepted):
            source, to = length + out.accepted[i], length + i
            _add_move(tables.side.moves, _slot(block_table, source), _slot(block_table, to))


@njit(inline="always")
def _sampled(tables: RootTables, block_table: Ints, rows: int) -> Ints:
    """Run a pass of the first `rows` rows that were written; return the token after each."""
    out, side, vocabulary = tables.tree.value.out, tables.side, tables.vocabulary
    sources, destinations = _taken(side.moves)
    batch = Batch(
        out.tokens[:rows],
        out.positions[:rows],
        out.slots[:rows],
        np.zeros(rows, np.int32),
        out.prefix[:rows],
        out.ancestors[:rows],
        out.depth[:rows],
        np.arange(rows).astype(np.int32),
        block_table.reshape(1, -1),
        sources,
        destinations,
    )
    run_together(side.team, side.model, batch, tables.shared)
    sampled = np.zeros(rows, np.int32)
    following = (out.positions[:rows] + 1).astype(np.int64)
    logits = side.model.value.buffers.logits[:rows]
    if logits.shape[1] == vocabulary:
        tables.call.sample(logits, following, tables.sampling.value, sampled)
    else:
        tokens = np.ascontiguousarray(logits[:, :vocabulary])  # the rest is padding
        tables.call.sample(tokens, following, tables.sampling.value, sampled)
    return sampled


@njit(inline="always")
def _follow(tables: RootTables, growth: GrowthTables, own: GrowthTerms, root: int) -> int:
    """Let the draft's tree follow the tokens that were committed; return the growths of the new
    root: 1 where nodes follow at once from what the draft knows."""
    state, moves = growth.tree.value.state, growth.side.moves
    tokens = tables.log.value.committed[root, : tables.log.value.tokens[root]]
    first = state[draft_table.ROOT_POSITION] + 1
    ids = read_ids(growth.tree.value.reading, tokens)
    growth.tokens[first : first + ids.shape[0]] = ids
    matched, sources, destinations = reroot.commit(growth.tree, tokens)
    tables.log.value.followed[root] = matched == tokens.shape[0]
    before = moves.waiting[0]
    for i in range(sources.shape[0]):
        origin = _origin(moves, before, _slot(own.block_table, sources[i]))
        _add_move(moves, origin, _slot(own.block_table, destinations[i]))
    _drop_overwritten(moves, before)
    if state[CACHED] <= state[draft_table.ROOT_POSITION]:
        return 0
    return int(_send(tables, growth, own.session))


@njit(inline="always")
def _needs_a_step(tables: RootTables, growth: GrowthTables, own: GrowthTerms) -> bool:
    """True if the draft has no room, or too many moves of KV, for another root of a run."""
    state, moves = growth.tree.value.state, growth.side.moves
    length, nodes = state[draft_table.ROOT_POSITION] + 1, state[NODES] + own.new_nodes
    return bool(
        length + (MAX_DEPTH + 1) * growth.tree.value.reading.longest >= own.session.most_tokens
        or length + nodes > own.session.room
        or moves.waiting[0] + nodes > moves.sources.shape[0]
    )


@njit(inline="always")
def _reason_to_return(tables: RootTables, terms: RootTerms, roots: int, so_far: int) -> int:
    """Return why no further root may follow the last of so many; `so_far` if nothing else."""
    log, last, length = tables.log.value, roots - 1, _length(tables)
    count = log.tokens[last]
    if count == 0 or length >= terms.most_tokens:
        return END
    if contains(tables.tree.value.ends, log.committed[last, count - 1]):
        return END
    if read(tables.arrived, 0) != 0:
        return MESSAGE
    if log.ended[last] - terms.sent_at >= terms.stream_seconds:
        return STREAM
    if length >= terms.block_tokens:
        return BLOCK_WANTED
    if so_far != GO_ON:
        return so_far
    return ROOTS if roots >= terms.roots else GO_ON


@njit(inline="always")
def _length(tables: RootTables) -> int:
    """Return the number of committed tokens."""
    return int(tables.tree.value.mirror.numbers[ROOT_POSITION]) + 1


@njit(inline="always")
def _slot(block_table: Ints, offset: int) -> int:
    """Return the pool's slot of an offset."""
    return int(block_table[offset // BLOCK]) * BLOCK + offset % BLOCK


@njit(inline="always")
def _taken(moves: Moves) -> tuple[Ints, Ints]:
    """Take the moves, as arrays of their own."""
    count = moves.waiting[0]
    moves.waiting[0] = 0
    return moves.sources[:count].copy(), moves.destinations[:count].copy()


@njit(inline="always")
def _add_move(moves: Moves, source: int, destination: int) -> None:
    """Add a move; all that are added together are read before any is written."""
    at = moves.waiting[0]
    moves.sources[at], moves.destinations[at] = source, destination
    moves.waiting[0] += 1


@njit(inline="always")
def _origin(moves: Moves, count: int, slot: int) -> int:
    """Return the slot whose KV the first `count` moves bring to a slot."""
    for at in range(count):
        if moves.destinations[at] == slot:
            return int(moves.sources[at])
    return slot


@njit(inline="always")
def _drop_overwritten(moves: Moves, before: int) -> None:
    """Drop those of the first `before` moves whose destinations later ones write again."""
    kept, count = 0, moves.waiting[0]
    for at in range(count):
        again = False
        if at < before:
            for later in range(before, count):
                again = again or moves.destinations[later] == moves.destinations[at]
        if not again:
            moves.sources[kept] = moves.sources[at]
            moves.destinations[kept] = moves.destinations[at]
            kept += 1
    moves.waiting[0] = kept
