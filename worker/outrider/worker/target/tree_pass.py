"""Compiled halves of a verify pass over one sequence's tree: what runs, and what it settles.

Each is one call without the interpreter lock, over arrays that are laid out once for a sequence:
it writes its results there, as returning an array costs more than computing it.
Joins the trees of `tree` and the estimates of `speculation`; leaves budgets to the planner, KV and
clients to `target/commit`.
"""

from typing import NamedTuple

from outrider.kernels.jit.compiled import njit
from outrider.kernels.jit.handle import Handle
from outrider.worker.costs.step_costs import Seconds
from outrider.worker.kv.block_pool import BLOCK
from outrider.worker.speculation.acceptance import (
    Curves,
    first_child_surplus,
    learn,
    outcomes,
    reach_of,
)
from outrider.worker.speculation.answer_index import AnswerIndex
from outrider.worker.speculation.answer_source import answered
from outrider.worker.speculation.planner import sorted_candidates
from outrider.worker.speculation.prediction_source import (
    Prediction,
    add_predicted,
    index_prediction,
)
from outrider.worker.speculation.suffix_automaton import SuffixTables, read
from outrider.worker.speculation.suffix_source import add_from_text
from outrider.worker.speculation.wait import next_reaches
from outrider.worker.target.pass_arrays import PassArrays
from outrider.worker.tree.growth import Ints
from outrider.worker.tree.mirror_table import (
    ANSWERS,
    COUNT,
    PREDICTION,
    ROOT_POSITION,
    SUFFIX,
    MirrorTables,
    add_proposals,
    commit,
    counted_source,
)
from outrider.worker.tree.walk import accept, row_paths


class TreeTables(NamedTuple):
    """All arrays of one sequence's tree."""

    mirror: MirrorTables
    own: Curves
    """The request's match rates."""
    average: Curves
    """Match rates of all requests."""
    suffix: SuffixTables
    """Suffix tables of prompt and answer; without room where the text is no source."""
    answers: AnswerIndex
    """Index of finished answers to the same key; without room where they are no source."""
    prediction: Prediction
    """Prediction of the answer; without tokens where the request has none."""
    ends: Ints
    """Tokens that end the answer."""
    out: PassArrays


TreeHandle = Handle[TreeTables]


class SearchTerms(NamedTuple):
    """Terms on which local sources look for nodes, and nodes are run."""

    nodes: int
    """Most nodes that local sources add, and most rows."""
    depth: int
    """Depth of the deepest node."""
    sources: int
    """Sources whose nodes count, a bit each; 0: no node is a candidate."""
    costs: Seconds
    """[k + 1] seconds of a pass with 0, 1, … k node rows."""
    rate: float
    """λ, in tokens per second."""


@njit()
def read_text(tree: TreeHandle, length: int, most: int) -> None:
    """Let the text's source read the first `length` committed tokens, at most so many now."""
    read(tree.value.suffix, tree.value.mirror.tokens, length, most)


@njit()
def read_prediction(tree: TreeHandle) -> None:
    """Do `index_prediction` by the handle of a tree."""
    index_prediction(tree.value.prediction)


@njit()
def search(tree: TreeHandle, sources: int, nodes: int, depth: int) -> int:
    """Let local sources, a bit each, add to the tree what they find; return how much that is.

    `nodes` at most of each, and none deeper than `depth`. The text's source reads on first.
    """
    mirror, added = tree.value.mirror, 0
    if nodes <= 0 or depth <= 0:
        return 0
    if sources >> PREDICTION & 1:
        added += add_predicted(mirror, tree.value.prediction, nodes, depth)
    if sources >> SUFFIX & 1:
        added += add_from_text(mirror, tree.value.suffix, nodes, depth)
    if sources >> ANSWERS & 1:
        length = mirror.numbers[ROOT_POSITION] + 1
        parents, tokens, logprobs = answered(
            tree.value.answers, mirror.tokens, length, nodes, depth
        )
        added += add_proposals(mirror, parents, tokens, logprobs, ANSWERS)
    return added


@njit()
def candidates(tree: TreeHandle, limit: int, depth: int, sources: int) -> int:
    """Write the fields of `planner.NodeCandidates`, and the chances of the draft's next nodes;
    return how many candidates there are.

    `limit`: tokens that the request may still get; `depth`: that of the draft's deepest node;
    `sources`: those whose nodes count, a bit each.
    """
    tables, out = tree.value, tree.value.out
    nodes = tables.mirror.nodes
    reach = reach_of(nodes, tables.mirror.numbers[COUNT], tables.own.matches.rates, sources)
    deepest = min(depth, limit - 1)
    out.next_reaches[:] = next_reaches(nodes, reach, tables.own.first.rates, deepest)
    order, reach, depths = sorted_candidates(reach, nodes, limit, tables.ends)
    count = order.shape[0]
    out.candidate[:count], out.reach[:count], out.candidate_depth[:count] = order, reach, depths
    return int(count)


@njit()
def write_rows(tree: TreeHandle, selected: Ints, block_table: Ints) -> None:
    """Write the rows of a verify pass: row 0 is the root, the `selected` nodes follow in order.

    They are the tokens, positions, slots, prefixes, ancestors and depths of `model.rows.Rows`.
    `block_table` int32[blocks]. Raises `ValueError` where a node is selected without its parent.
    """
    mirror, out = tree.value.mirror, tree.value.out
    nodes, root = mirror.nodes, mirror.numbers[ROOT_POSITION]
    count = selected.shape[0] + 1
    _, paths, depths = row_paths(nodes.parent, nodes.depth, selected)
    out.tokens[0], out.depth[0] = mirror.tokens[root], 0
    for row in range(1, count):
        out.tokens[row], out.depth[row] = nodes.token[selected[row - 1]], depths[row - 1]
        out.source[row] = counted_source(nodes, selected[row - 1])
        for level in range(depths[row - 1]):
            out.ancestors[row, level] = root + 1 + paths[row - 1, level]
    for row in range(count):
        out.positions[row], offset = root + out.depth[row], root + row
        out.slots[row] = block_table[offset // BLOCK] * BLOCK + offset % BLOCK
        out.prefix[row] = root + 1


@njit()
def settle(
    tree: TreeHandle, selected: Ints, sampled: Ints, limit: int
) -> tuple[int, int, bool, float]:
    """Walk the tree, learn from it, and move its root along what is committed.

    `selected` int32[rows] nodes; `sampled` int32[rows + 1] tokens after the root's row and each of
    theirs; `limit`: tokens that the request may still get. Writes the accepted rows and the
    committed tokens; returns how many there are of each, True for a fall-in, and the
    `first_child_surplus`. Where the last token is negative, so none, it returns that there are no
    tokens, nothing is learned and nothing moves.
    """
    tables, out = tree.value, tree.value.out
    nodes, count = tables.mirror.nodes, tables.mirror.numbers[COUNT]
    parents, _, _ = row_paths(nodes.parent, nodes.depth, selected)
    accepted, tokens = accept(parents, nodes.token[selected], sampled, tables.ends, limit)
    if tokens[-1] < 0:
        return 0, 0, False, 0.0
    out.accepted[: accepted.shape[0]], out.committed[: tokens.shape[0]] = accepted, tokens
    _count_by_source(out, selected.shape[0], accepted)
    surplus = 0.0
    if count > 0:
        seen = outcomes(nodes, count, selected, sampled)
        learn(seen, sampled.shape[0], tables.own)
        learn(seen, sampled.shape[0], tables.average)
        surplus = first_child_surplus(nodes, seen)
    return accepted.shape[0], tokens.shape[0], commit(tables.mirror, tokens), surplus


@njit()
def _count_by_source(out: PassArrays, rows: int, accepted: Ints) -> None:
    """Count the node rows of a pass, and those accepted, by what proposed them as they were
    written."""
    out.source_rows[:], out.source_accepted[:] = 0, 0
    for row in range(1, rows + 1):
        out.source_rows[out.source[row]] += 1
    for row in accepted:
        out.source_accepted[out.source[row + 1]] += 1
