"""The compiled loop of a serial draft: one sequence's roots, on and on without the interpreter.

For each root the draft runs the passes that its target waits for, then the target verifies what
pays. The loop is made of the compiled pieces that steps in Python call one by one, with those steps
as its reference. It writes down each root, for `root_run` to book as steps would. Leaves what may
run so to `root_run` (docs/decisions/0028).
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from outrider.contract.settings import MAX_DEPTH, MAX_NODE_ROWS
from outrider.contract.sources import SOURCES
from outrider.kernels.cpu.clock import monotonic
from outrider.kernels.cpu.collectives import SharedSums
from outrider.kernels.cpu.forward import Batch
from outrider.kernels.cpu.pass_threads import Crew, run_together
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
from outrider.worker.target.pass_loop import BLOCK as BLOCK_WANTED
from outrider.worker.target.pass_loop import BOOKS, DRAFT, END, GO_ON, MESSAGE, NO_TOKENS, STREAM
from outrider.worker.target.tree_pass import (
    Hunt,
    TreeHandle,
    candidates,
    search,
    settle,
    write_rows,
)
from outrider.worker.tree import draft_table, mirror_table, reroot
from outrider.worker.tree.draft_rows import OUTPUTS, ROWS, TREES, RowArrays
from outrider.worker.tree.draft_table import CACHED, LAST_ID, NODES, DraftTables
from outrider.worker.tree.growth import Floats, Growth, Ids, Ints
from outrider.worker.tree.mirror_table import COUNT, ROOT_POSITION
from outrider.worker.tree.walk import contains

MOST_ROOTS = 16
"""Roots of one run."""
MOST_GROWTHS = 4
"""Passes of the draft at one root of a run."""


class RootLog(NamedTuple):
    """Roots of one run, [MOST_ROOTS] each; `values` to `draft_began` by the draft's passes too."""

    values: NDArray[np.float64]
    """Of the step with the tree as it is after so many passes, in tokens;"""
    times: NDArray[np.float64]
    """when that was weighed."""
    draft_rows: Ids
    """Rows of the draft's passes,"""
    draft_prefills: Ids
    """of which those of committed tokens;"""
    draft_began: NDArray[np.float64]
    """when it began; `times` says when it ended;"""
    sent: NDArray[np.bool_]
    """True where the tree grew by it."""
    grown: Ids
    """[MOST_ROOTS + 1] growths that its tree had as it began, the next one's too;"""
    passes: Ids
    """passes of the draft from then on."""
    supplied: NDArray[np.bool_]
    """True where it began with rows, as of `Answer`."""
    began: NDArray[np.float64]
    """Of the target's pass."""
    ended: NDArray[np.float64]
    live: Ids
    """Nodes of the mirror as rows were selected."""
    nodes: Ids
    """Node rows;"""
    selected: Ints
    """[roots, most] their nodes."""
    first_token: Ids
    """Likeliest token after the root, if its node is among the rows; -1: it is not."""
    accepted: Ids
    tokens: Ids
    """Committed; 0: no logit was a number."""
    committed: Ints
    """[roots, deepest + 1]"""
    survived: NDArray[np.bool_]
    """True where the new root was in the mirror."""
    followed: NDArray[np.bool_]
    """True where it was in the draft's tree."""
    surplus: NDArray[np.float64]
    """`first_child_surplus`."""
    source_rows: Ids
    """[roots, sources]"""
    source_accepted: Ids

    @classmethod
    def empty(cls) -> "RootLog":
        """Return a log of no root."""
        grown = (MOST_ROOTS, MOST_GROWTHS + 1)
        ids = [np.zeros(MOST_ROOTS, np.int64) for _ in range(6)]
        passes, live, nodes, first_token, accepted, tokens = ids
        began, ended, surplus = (np.zeros(MOST_ROOTS) for _ in range(3))
        source_rows, source_accepted = (
            np.zeros((MOST_ROOTS, len(SOURCES)), np.int64) for _ in range(2)
        )
        return cls(
            np.zeros(grown),
            np.zeros(grown),
            np.zeros(grown, np.int64),
            np.zeros(grown, np.int64),
            np.zeros(grown),
            np.zeros(grown, np.bool_),
            np.zeros(MOST_ROOTS + 1, np.int64),
            passes,
            np.zeros(MOST_ROOTS, np.bool_),
            began,
            ended,
            live,
            nodes,
            np.zeros((MOST_ROOTS, MAX_NODE_ROWS), np.int32),
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

    crew: Handle[Crew]
    model: Any
    """Handle of `kernels.cpu.forward.PassModel`."""
    moves: Moves


class Vocabularies(NamedTuple):
    """Numbers of tokens."""

    target: int
    """Logits of the target that are tokens;"""
    draft: int
    """those of the draft."""
    readable: int
    """Token ids that the draft can read."""


class RootFunctions(NamedTuple):
    """Compiled functions that a run calls by their address."""

    search: ByAddress
    candidates: ByAddress
    score_rows: ByAddress
    sample: ByAddress
    settle: ByAddress

    @classmethod
    def of(
        cls, tree: TreeHandle, rules: Handle[ScoreRules], noise: Handle[NoiseRows]
    ) -> "RootFunctions":
        """Return them for arguments of these types."""
        logits, logprobs = (np.empty((0, 0), np.float32) for _ in range(2))
        positions, tokens = NO_TOKENS, NO_TOKENS.reshape(0, 0)
        return cls(
            ByAddress(search, tree, 0, 0, 0),
            ByAddress(candidates, tree, 0, 0),
            ByAddress(score_rows, logits, positions, rules, noise, tokens, logprobs),
            sample_by_address(),
            ByAddress(settle, tree, NO_TOKENS, NO_TOKENS, 0),
        )


class RootTables(NamedTuple):
    """What the roots of one sequence read and write."""

    tree: TreeHandle
    draft: Handle[DraftTables]
    draft_tokens: Ints
    """Committed tokens as the draft knows them."""
    rows: Handle[RowArrays]
    target_side: Side
    draft_side: Side
    shared: SharedSums
    sampling: Handle[SamplingTuple]
    noise: Handle[NoiseRows]
    allowed: NDArray[np.bool_]
    """[vocabulary] ids on which both tokenizers agree."""
    vocabularies: Vocabularies
    arrived: NDArray[np.int64]
    """[1] not 0 while there may be a message."""
    log: Handle[RootLog]
    call: RootFunctions


class RootTerms(NamedTuple):
    """Bounds of one run, and what is taken for known while it goes on."""

    hunt: Hunt
    """What local sources may add, and which node rows pay."""
    draft: DraftTerms
    most_tokens: int
    """This and the next three as in `pass_loop.Stops`."""
    block_tokens: int
    sent_at: float
    stream_seconds: float
    roots: int
    """At most `MOST_ROOTS`."""
    fresh_growths: int
    """Growths that a root is waited for that begins without rows;"""
    supplied_growths: int
    """one that has some. At most `MOST_GROWTHS` each."""
    full: int
    """Nodes from which on a draft's tree is not waited for."""
    new_nodes: int
    """Nodes by which the draft's tree may grow at one root."""
    local: bool
    """True if local sources look for nodes: a root is supplied if rows pay after that;"""
    judged: bool
    """True if that is known of the first root."""
    supplied: bool
    """True if the first root is, or else was in the mirror;"""
    grown: int
    """growths that it has had."""


class Pages(NamedTuple):
    """Block tables of the sequence."""

    target: Ints
    draft: Ints


@njit()
def run_roots(
    loop: Handle[RootTables], pages: Pages, rules: Handle[ScoreRules], terms: RootTerms
) -> tuple[int, int]:
    """Run roots until there is a reason to return; return their number, and that reason."""
    tables, log, roots, reason = loop.value, loop.value.log.value, 0, GO_ON
    supplied, log.grown[0] = terms.supplied, terms.grown
    while reason == GO_ON:
        log.supplied[roots] = supplied
        goes_on = _grow(tables, pages, rules, terms, roots)
        supplied = _verify(tables, pages, terms, roots)
        reason = GO_ON if goes_on else DRAFT
        if log.tokens[roots]:
            log.grown[roots + 1] = _follow(tables, pages, terms, roots)
        roots += 1
        reason = _reason_to_return(tables, terms, roots, reason)
    return roots, reason


@njit(inline="always")
def _grow(
    tables: RootTables,
    pages: Pages,
    rules: Handle[ScoreRules],
    terms: RootTerms,
    root: int,
) -> bool:
    """Let local sources look for nodes, then the tree grow by as many passes of the draft as its
    root is waited for, or until it is full; return False where the draft has nothing to run."""
    log, hunt = tables.log.value, terms.hunt
    depth = min(hunt.depth, terms.most_tokens - _length(tables) - 1)
    tables.call.search(tables.tree, hunt.sources, hunt.nodes, depth)
    log.passes[root] = 0
    _weigh(tables, terms, root)
    if terms.local and (root > 0 or not terms.judged):
        log.supplied[root] = log.nodes[root] > 0
    for at in range(_wanted(tables, terms, root)):
        if tables.draft.value.state[NODES] >= terms.full:
            return True
        log.draft_began[root, at] = monotonic()
        rows, prefill, sent = _draft_pass(tables, pages.draft, rules, terms.draft)
        if rows == 0:
            return False
        log.draft_rows[root, at], log.draft_prefills[root, at] = rows, prefill
        log.sent[root, at] = sent
        log.passes[root] = at + 1
        _weigh(tables, terms, root)
    return True


@njit(inline="always")
def _wanted(tables: RootTables, terms: RootTerms, root: int) -> int:
    """Return the growths that a root is still waited for."""
    if terms.most_tokens - _length(tables) <= 1:  # no node could add a token
        return 0
    most = terms.supplied_growths if tables.log.value.supplied[root] else terms.fresh_growths
    return int(max(0, most - tables.log.value.grown[root]))


@njit(inline="always")
def _weigh(tables: RootTables, terms: RootTerms, root: int) -> None:
    """Rank the candidates; write down what a step with the best of them is worth, and when."""
    log, hunt = tables.log.value, terms.hunt
    limit = terms.most_tokens - _length(tables)
    count = min(tables.call.candidates(tables.tree, limit, hunt.sources), MAX_NODE_ROWS)
    rows, value = best_count(tables.tree.value.out.reach[:count], hunt.costs, hunt.rate)
    log.nodes[root] = rows
    log.values[root, log.passes[root]] = value + hunt.rate * hunt.costs[0]
    log.times[root, log.passes[root]] = monotonic()


@njit(inline="always")
def _draft_pass(
    tables: RootTables, block_table: Ints, rules: Handle[ScoreRules], terms: DraftTerms
) -> tuple[int, int, bool]:
    """Run one pass of the draft and add its growth to both trees.

    Returns its rows, none where it has nothing to run, those of committed tokens among them, and
    True if there was growth.
    """
    state, out = tables.draft.value.state, tables.rows.value
    root, prefill, sent = state[draft_table.ROOT_POSITION], 0, False
    if state[CACHED] <= root:
        prefill = draft_table.prefill_rows(
            tables.draft,
            tables.rows,
            block_table,
            terms.published,
            tables.draft_tokens,
            terms.prefill_rows,
        )
    elif state[NODES] < terms.nodes_ahead:
        draft_table.leaf_rows(
            tables.draft, tables.rows, block_table, terms.published, terms.width, terms.depth
        )
    rows, outputs = out.used[ROWS], out.used[OUTPUTS]
    out.used[ROWS], out.used[OUTPUTS], out.used[TREES] = 0, 0, 0
    if rows == 0:
        return 0, 0, sent
    _run_draft(tables, block_table, rows, outputs)
    state[CACHED] += prefill
    if outputs:
        tokens, logprobs = _children(tables, rules, outputs)
        draft_table.offer(
            tables.draft, out.leaf[:outputs], out.offset[:outputs], tokens, logprobs, 0.0
        )
        sent = _send(tables, terms) > 0
    return rows, prefill, sent


@njit(inline="always")
def _run_draft(tables: RootTables, block_table: Ints, rows: int, outputs: int) -> None:
    out, side = tables.rows.value, tables.draft_side
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
    run_together(side.crew, side.model, batch, tables.shared)


@njit(inline="always")
def _children(tables: RootTables, rules: Handle[ScoreRules], outputs: int) -> tuple[Ints, Floats]:
    """Return the top children of each row with output, [outputs, branch] tokens and estimates."""
    tokens = np.empty((outputs, BRANCH), np.int32)
    logprobs = np.empty((outputs, BRANCH), np.float32)
    logits = tables.draft_side.model.value.buffers.logits[:outputs]
    positions = tables.rows.value.sampled_at[:outputs]
    if logits.shape[1] == tables.vocabularies.draft:
        tables.call.score_rows(logits, positions, rules, tables.noise, tokens, logprobs)
    else:
        own = np.ascontiguousarray(logits[:, : tables.vocabularies.draft])  # the rest is padding
        tables.call.score_rows(own, positions, rules, tables.noise, tokens, logprobs)
    return tokens, logprobs


@njit(inline="always")
def _send(tables: RootTables, terms: DraftTerms) -> int:
    """Make nodes of the draft's best candidates, and add them to the mirror; return 1 if there are
    any, else 0.

    Raises `ValueError` for growth that a link would be closed for.
    """
    state = tables.draft.value.state
    parents, tokens, logprobs = draft_table.send(
        tables.draft, terms.nodes_ahead, terms.max_new_nodes, terms.depth
    )
    count = parents.shape[0]
    if count == 0:
        return 0
    growth = Growth(
        state[draft_table.ROOT_POSITION], state[LAST_ID] + 1 - count, parents, tokens, logprobs
    )
    fault, _ = mirror_table.fault_of(growth, tables.allowed)
    if fault != mirror_table.FINE:
        raise ValueError("the draft's growth breaks the rules of a mirror")
    mirror_table.grow(tables.tree.value.mirror, growth)
    return 1


@njit(inline="always")
def _verify(tables: RootTables, pages: Pages, terms: RootTerms, root: int) -> bool:
    """Run the target's pass over the best candidates, as many as pay, and commit its tokens; True
    for a fall-in."""
    log, out, mirror = tables.log.value, tables.tree.value.out, tables.tree.value.mirror
    length = _length(tables)
    count, limit = log.nodes[root], terms.most_tokens - length
    selected = out.candidate[:count].copy()
    log.selected[root, :count] = selected
    log.live[root] = mirror.numbers[COUNT]
    log.first_token[root] = mirror.nodes.token[selected[0]] if count else -1
    write_rows(tables.tree, selected, pages.target)
    log.began[root] = monotonic()
    sampled = _sampled(tables, pages.target, count + 1)
    log.ended[root] = monotonic()
    accepted, tokens, survived, surplus = tables.call.settle(tables.tree, selected, sampled, limit)
    log.accepted[root], log.tokens[root] = accepted, tokens
    log.survived[root], log.surplus[root] = survived, surplus
    if tokens == 0:
        return False
    log.committed[root, :tokens] = out.committed[:tokens]
    log.source_rows[root], log.source_accepted[root] = out.source_rows, out.source_accepted
    if accepted and out.accepted[accepted - 1] != accepted - 1:
        for i in range(accepted):
            source, to = length + out.accepted[i], length + i
            _add_move(
                tables.target_side.moves, _slot(pages.target, source), _slot(pages.target, to)
            )
    return bool(survived)


@njit(inline="always")
def _sampled(tables: RootTables, block_table: Ints, rows: int) -> Ints:
    """Run a pass of the first `rows` rows that were written; return the token after each."""
    out, side, vocabulary = tables.tree.value.out, tables.target_side, tables.vocabularies.target
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
    run_together(side.crew, side.model, batch, tables.shared)
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
def _follow(tables: RootTables, pages: Pages, terms: RootTerms, root: int) -> int:
    """Let the draft's tree follow the tokens that were committed; return the growths of the new
    root: 1 where nodes follow at once from what the draft knows."""
    state, moves = tables.draft.value.state, tables.draft_side.moves
    tokens = tables.log.value.committed[root, : tables.log.value.tokens[root]]
    first = state[draft_table.ROOT_POSITION] + 1
    for i in range(tokens.shape[0]):
        tables.draft_tokens[first + i] = min(tokens[i], tables.vocabularies.readable - 1)
    matched, sources, destinations = reroot.commit(tables.draft, tokens)
    tables.log.value.followed[root] = matched == tokens.shape[0]
    before = moves.waiting[0]
    for i in range(sources.shape[0]):
        origin = _origin(moves, before, _slot(pages.draft, sources[i]))
        _add_move(moves, origin, _slot(pages.draft, destinations[i]))
    _drop_overwritten(moves, before)
    if state[CACHED] <= state[draft_table.ROOT_POSITION]:
        return 0
    return int(_send(tables, terms.draft))


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
    nodes = tables.draft.value.state[NODES] + terms.new_nodes
    if length + MAX_DEPTH + 1 >= terms.draft.most_tokens or length + nodes > terms.draft.room:
        return DRAFT
    moves = tables.draft_side.moves
    if moves.waiting[0] + nodes > moves.sources.shape[0]:
        return DRAFT
    return BOOKS if roots >= terms.roots else so_far


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
