"""The compiled halves of a verify pass, against the same steps one after the other in numpy."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from outrider.kernels.jit.handle import handle
from outrider.worker.kv.block_pool import BLOCK
from outrider.worker.speculation.acceptance import (
    ALL_SOURCES,
    Calibration,
    first_child_surplus,
    outcomes,
)
from outrider.worker.speculation.answer_index import NO_ANSWERS
from outrider.worker.speculation.prediction_source import Prediction
from outrider.worker.speculation.suffix_automaton import SuffixTables
from outrider.worker.target.pass_arrays import PassArrays, PassViews
from outrider.worker.target.tree_pass import TreeTables, candidates, settle, write_rows
from outrider.worker.tree.growth import Growth, Ints
from outrider.worker.tree.mirror import Mirror
from outrider.worker.tree.mirror_table import ID_COUNT
from outrider.worker.tree.walk import ROOT, committed_tokens, paths, walk

TOKENS = 6
"""So few that siblings are often sampled."""
PROMPT = 100
ROOT_TOKEN = 3
ENDS = np.array([5], np.int32)
BLOCKS = np.array([7, 2, 9, 4], np.int32)
FIELDS = ("parent", "token", "depth", "logprob", "proposer", "first_id")


class Side:
    """One sequence's tree, with what its request and all requests have learned."""

    def __init__(self, nodes: list[tuple[float, int, float]]) -> None:
        tokens = np.zeros(PROMPT + 100, np.int32)
        tokens[PROMPT - 1] = ROOT_TOKEN
        self.mirror = Mirror(PROMPT - 1, tokens=tokens)
        parents = np.array([int(at * i) for i, (at, _, _) in enumerate(nodes)], np.int64)
        growth = Growth(
            PROMPT - 1,
            1,
            parents,
            np.array([token for _, token, _ in nodes], np.int32),
            np.array([logprob for _, _, logprob in nodes], np.float32),
        )
        self.mirror.receive(growth, len(nodes), np.ones(TOKENS, np.bool_))
        self.average = Calibration()
        self.own = Calibration(self.average)
        arrays = PassArrays.empty(len(self.mirror.tables.nodes.parent))
        self.tree = handle(
            TreeTables(
                self.mirror.tables,
                self.own.curves,
                self.average.curves,
                SuffixTables.empty(0),
                NO_ANSWERS,
                Prediction.of(np.empty(0, np.int32), PROMPT),
                ENDS,
                arrays,
            )
        )
        self.views = PassViews(arrays)

    def best(self, rows: int) -> Ints:
        """Return the best candidates, at most so many."""
        return self.views.candidates(candidates(self.tree, 100, 32, ALL_SOURCES)).nodes[:rows]

    def columns(self) -> list[list[float]]:
        """Return what the mirror holds."""
        mirror = self.mirror
        numbers = mirror.tables.numbers.tolist()
        ids = [column[: numbers[ID_COUNT]].tolist() for column in mirror.tables.ids]
        nodes = [getattr(mirror, name).tolist() for name in FIELDS]
        return [numbers, mirror.tokens.tolist(), *ids, *nodes]


trees = st.lists(
    st.tuples(st.floats(0, 1), st.integers(0, TOKENS - 1), st.floats(-4, 0)), max_size=30
)
tokens = st.integers(0, TOKENS - 1)


@settings(deadline=None)
@given(trees, st.integers(0, 12), st.lists(tokens, min_size=13, max_size=13), st.integers(1, 4))
def test_settling_is_a_walk_then_learning_then_a_commit(
    nodes: list[tuple[float, int, float]], rows: int, drawn: list[int], limit: int
) -> None:
    fused, plain = Side(nodes), Side(nodes)
    selected = fused.best(rows)
    sampled = np.array(drawn[: len(selected) + 1], np.int32)
    mirror = plain.mirror
    live = len(mirror)
    row_parent = paths(mirror.parent, mirror.depth, selected).parent
    row_token = mirror.token[selected]
    accepted = walk(row_parent, row_token, sampled, ENDS, limit)
    committed = committed_tokens(accepted, row_token, sampled)
    table = mirror.tables.nodes
    surplus = first_child_surplus(table, outcomes(table, live, selected, sampled))
    if live:
        plain.own.learn(mirror, selected, sampled)
    survived = mirror.commit(committed)

    found = settle(fused.tree, selected, sampled, limit)
    assert fused.views.accepted(found[0]).tolist() == accepted.tolist()
    assert fused.views.committed(found[1]).tolist() == committed.tolist()
    assert found[2:] == (survived, surplus)
    assert fused.columns() == plain.columns()
    np.testing.assert_array_equal(fused.own.rates, plain.own.rates)
    np.testing.assert_array_equal(fused.own.first, plain.own.first)
    np.testing.assert_array_equal(fused.average.rates, plain.average.rates)


def test_without_a_number_nothing_is_learned_and_nothing_moves() -> None:
    side = Side([(0.0, 1, -0.5), (1.0, 2, -0.5)])
    before, rates = side.columns(), side.own.rates.copy()
    selected = np.array([0], np.int32)
    found = settle(side.tree, selected, np.array([1, -1], np.int32), 100)
    assert found == (0, 0, False, 0.0)
    assert side.columns() == before
    np.testing.assert_array_equal(side.own.rates, rates)


@settings(deadline=None)
@given(trees, st.integers(0, 12))
def test_rows_are_those_of_their_paths(nodes: list[tuple[float, int, float]], rows: int) -> None:
    side = Side(nodes)
    mirror, root = side.mirror, PROMPT - 1
    selected = side.best(rows)
    places = paths(mirror.parent, mirror.depth, selected)
    write_rows(side.tree, selected, BLOCKS)
    found = side.views.rows(1 + len(selected), BLOCKS)
    tokens, depth = found.tokens, found.depth
    assert tokens.tolist() == [ROOT_TOKEN, *mirror.token[selected].tolist()]
    assert depth.tolist() == [0, *places.depth.tolist()]
    assert found.positions.tolist() == [root + d for d in depth.tolist()]
    assert found.prefix.tolist() == [root + 1] * len(tokens)
    offsets = root + np.arange(len(tokens))
    assert found.slots.tolist() == (BLOCKS[offsets // BLOCK] * BLOCK + offsets % BLOCK).tolist()
    for row, chain in enumerate(places.ancestors, start=1):
        seen = chain[chain != ROOT] + root + 1
        assert found.ancestors[row, : depth[row]].tolist() == seen.tolist()
        assert seen[-1] == root + row


def test_a_node_without_its_parent_is_refused() -> None:
    side = Side([(0.0, 1, -0.5), (1.0, 2, -0.5)])
    with pytest.raises(ValueError, match="without, or before, its parent"):
        write_rows(side.tree, np.array([1], np.int32), BLOCKS)
