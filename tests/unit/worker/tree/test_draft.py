"""The draft's copy: leaves, candidates, limits, and what commits do to its KV."""

import numpy as np
import pytest

from outrider.worker.errors import ProtocolViolation
from outrider.worker.kv.block_pool import BlockTable
from outrider.worker.tree.draft import DraftTree
from outrider.worker.tree.draft_rows import DraftRows, RowColumns
from outrider.worker.tree.growth import Growth, Ints
from outrider.worker.tree.walk import ROOT


def ints(*values: int) -> Ints:
    return np.array(values, np.int32)


TABLE = BlockTable(np.arange(4, dtype=np.int32), 0, 0, b"", False)
"""Slots are offsets."""
TOKENS = np.arange(100, 164, dtype=np.int32)


def prefill(tree: DraftTree, most: int = 64) -> RowColumns:
    """Run what has no KV, the root last."""
    rows = DraftRows(64, 16)
    tree.mark_prefilled(tree.prefill(rows, TABLE, TOKENS, most))
    return rows.take()


def leaf_rows(tree: DraftTree, width: int, depth_limit: int) -> RowColumns:
    """Rows of the best leaves."""
    rows = DraftRows(64, 16)
    count = tree.expand(rows, TABLE, width, depth_limit)
    taken = rows.take()
    assert count == len(taken.token) == len(taken.leaf)
    return taken


def leaves(tree: DraftTree, width: int, depth_limit: int) -> list[int]:
    found = leaf_rows(tree, width, depth_limit).leaf.tolist()
    assert tree.has_leaves(depth_limit) == (len(found) > 0)
    return found


def expand(tree: DraftTree, leaves: Ints, *children: tuple[int, float], each: int = 2) -> None:
    """Run the rows of `leaves` and offer (token, logprob) children, `each` per leaf."""
    if not tree.root_expanded:
        prefill(tree)
    free = tree.root_position + 1 + np.count_nonzero(tree.nodes.slot >= 0)
    offsets = np.arange(free, free + len(leaves), dtype=np.int32)
    tokens = np.array([token for token, _ in children], np.int32).reshape(-1, each)
    logprobs = np.array([logprob for _, logprob in children], np.float32).reshape(-1, each)
    tree.offer(leaves, offsets, tokens, logprobs)


def sent(growth: Growth | None) -> list[tuple[int, int, int]]:
    """(id, parent id, token) of every node sent."""
    assert growth is not None
    ids = range(growth.first_id, growth.first_id + len(growth.tokens))
    return list(zip(ids, growth.parents.tolist(), growth.tokens.tolist(), strict=True))


def grown() -> DraftTree:
    """Root at 9 with nodes 1 (token 5) and 2 (token 6); 1 has 3 (token 7) and 4 (token 8)."""
    tree = DraftTree(10)
    expand(tree, ints(ROOT), (5, -0.5), (6, -1.5))
    tree.send(64, 8, 8)
    expand(tree, ints(0), (7, -0.25), (8, -2.0))
    tree.send(64, 8, 8)
    return tree


def test_a_new_session_runs_its_tokens_and_then_its_root() -> None:
    tree = DraftTree(10)
    rows = prefill(tree, most=4)
    assert rows.token.tolist() == [100, 101, 102, 103]
    assert rows.position.tolist() == rows.slot.tolist() == [0, 1, 2, 3]
    assert rows.prefix.tolist() == [1, 2, 3, 4]
    assert rows.depth.tolist() == [0, 0, 0, 0]
    assert rows.output.tolist() == []
    with pytest.raises(ValueError, match="before its row"):
        tree.offer(ints(ROOT), ints(9), ints(5)[None], np.zeros((1, 1), np.float32))
    rows = prefill(tree)
    assert rows.position.tolist() == [4, 5, 6, 7, 8, 9]
    assert rows.output.tolist() == [5]
    assert (rows.leaf.tolist(), rows.offset.tolist()) == ([ROOT], [9])
    assert rows.sampled_at.tolist() == [10]
    assert tree.root_expanded
    with pytest.raises(ValueError, match="1 positions ran"):
        tree.mark_prefilled(1)
    expand(tree, ints(ROOT), (5, -0.5), (6, -1.5))
    assert sent(tree.send(64, 8, 8)) == [(1, 0, 5), (2, 0, 6)]


def test_leaves_come_best_first_and_are_expanded_once() -> None:
    tree = grown()
    assert leaves(tree, 8, 8) == [2, 1, 3]  # scores -0.75, -1.5, -2.5
    assert leaves(tree, 2, 8) == [2, 1]
    np.testing.assert_allclose(tree.nodes.score[[2, 1, 3]], [-0.75, -1.5, -2.5])


def test_a_leaf_at_the_depth_limit_is_not_expanded() -> None:
    assert leaves(grown(), 8, 2) == [1]
    assert leaves(grown(), 8, 1) == []


def test_nothing_grows_below_an_end_token() -> None:
    tree = DraftTree(1, end_tokens=ints(5))
    expand(tree, ints(ROOT), (5, -0.5), (6, -1.5))
    tree.send(64, 8, 8)
    assert leaves(tree, 8, 8) == [1]


@pytest.mark.parametrize(("least", "found"), [(-0.4, [0]), (-1.0, [0]), (-1.5, [0, 1])])
def test_the_best_leaf_is_expanded_and_others_from_a_score_on(
    least: float, found: list[int]
) -> None:
    tree, rows = DraftTree(1), DraftRows(64, 16)
    expand(tree, ints(ROOT), (5, -0.5), (6, -1.5))
    tree.send(64, 8, 8)
    assert tree.expand(rows, TABLE, 8, 8, least) == len(found)
    assert rows.take().leaf.tolist() == found


def test_rows_see_their_ancestors_slots() -> None:
    rows = leaf_rows(grown(), 2, 8)
    assert rows.slot.tolist() == rows.offset.tolist() == [11, 12]
    assert rows.position.tolist() == [11, 10]
    assert rows.sampled_at.tolist() == [12, 11]
    assert rows.prefix.tolist() == [10, 10]
    assert rows.output.tolist() == [0, 1]
    assert rows.ancestors[:, :2].tolist() == [[10, 11], [12, -1]]
    assert (rows.ancestors[:, 2:] == -1).all()


def test_trees_write_their_rows_one_after_another() -> None:
    rows, deep, flat = DraftRows(16, 16), grown(), DraftTree(3)
    expand(flat, ints(ROOT), (5, -0.5), (6, -1.5))
    flat.send(64, 8, 8)
    new = DraftTree(2)
    shifted = BlockTable(np.array([7, 2], np.int32), 0, 0, b"", False)
    for _ in range(2):  # what one pass writes the next does not find
        assert new.prefill(rows, TABLE, TOKENS, 64) == 2
        assert deep.expand(rows, shifted, 1, 8) == 1
        assert flat.expand(rows, shifted, 8, 8) == 2
        taken = rows.take()
        assert taken.tree.tolist() == [0, 0, 1, 2, 2]
        assert taken.token.tolist() == [100, 101, 7, 5, 6]
        assert taken.slot.tolist() == [0, 1, 7 * 64 + 11, 7 * 64 + 3, 7 * 64 + 4]
        assert taken.output.tolist() == [1, 2, 3, 4]
        assert taken.leaf.tolist() == [ROOT, 2, 0, 1]
        paths = taken.ancestors[:, :2].tolist()
        assert paths == [[-1, -1], [-1, -1], [10, 11], [3, -1], [4, -1]]
    assert len(rows.take().token) == 0


def test_leaves_deeper_than_rows_have_room_for_stay_leaves() -> None:
    rows = DraftRows(16, 1)
    assert grown().expand(rows, TABLE, 8, 8) == 1
    assert rows.take().leaf.tolist() == [1]


@pytest.mark.parametrize(("blocks", "published"), [(1, 1), (0, 0)])
def test_rows_go_to_no_slot_that_may_not_be_written(blocks: int, published: int) -> None:
    table = BlockTable(np.arange(blocks, dtype=np.int32), 0, published, b"", False)
    with pytest.raises(ValueError, match="may not be written"):
        grown().expand(DraftRows(16, 16), table, 8, 8)
    with pytest.raises(ValueError, match="may not be written"):
        DraftTree(3).prefill(DraftRows(16, 16), table, TOKENS, 64)


def test_nodes_ahead_and_max_new_nodes_bound_what_is_sent_and_the_rest_waits() -> None:
    tree = DraftTree(1)
    children = [(token, -float(token)) for token in range(1, 7)]
    expand(tree, ints(ROOT), *children, each=6)
    assert sent(tree.send(3, 2, 8)) == [(1, 0, 1), (2, 0, 2)]
    assert sent(tree.send(3, 2, 8)) == [(3, 0, 3)]
    assert tree.send(3, 2, 8) is None
    assert tree.send(0, 2, 8) is None
    assert len(tree.candidates.parent) == 3


def test_more_is_sent_at_once_where_the_next_pass_would_have_no_work() -> None:
    tree = DraftTree(1)
    expand(tree, ints(ROOT), *[(token, -float(token)) for token in range(1, 7)], each=6)
    assert [number for number, _, _ in sent(tree.send(5, 2, 1))] == [1, 2, 3, 4, 5]


def test_the_best_candidates_are_kept_when_there_are_too_many() -> None:
    tree = DraftTree(1, candidate_capacity=2)
    expand(tree, ints(ROOT), (1, -3.0), (2, -1.0), (3, -np.inf), (4, -2.0), (5, -4.0), each=5)
    assert sent(tree.send(8, 8, 8)) == [(1, 0, 2), (2, 0, 4)]


def test_a_fall_in_runs_nothing_and_moves_kv() -> None:
    tree = grown()
    expand(tree, ints(1), (5, -0.1), (6, -4.0))  # node 2 takes slot 11
    expand(tree, ints(2), (4, -0.5), (2, -4.0))  # node 3 takes slot 12
    done = tree.commit(9, ints(5))
    assert done.fall_in
    assert done.matched == 1
    assert tree.root_expanded
    assert (done.sources.tolist(), done.destinations.tolist()) == ([12], [11])
    assert tree.nodes.id.tolist() == [3, 4]
    assert tree.nodes.parent.tolist() == [ROOT, ROOT]
    np.testing.assert_allclose(tree.nodes.score, [-0.25, -2.0])


def test_candidates_below_the_new_root_survive_a_commit() -> None:
    tree = grown()
    expand(tree, ints(2), (4, -0.5), (2, -4.0))
    expand(tree, ints(1), (9, -0.1), (8, -0.2))
    tree.commit(9, ints(5))
    assert len(tree.candidates.parent) == 2
    growth = tree.send(64, 8, 8)
    assert sent(growth) == [(5, 3, 4), (6, 3, 2)]
    assert growth is not None
    assert growth.root_position == 10


def test_a_new_root_without_kv_runs_next() -> None:
    tree = grown()
    assert tree.commit(9, ints(6)).fall_in
    rows = prefill(tree)
    assert (rows.position.tolist(), rows.slot.tolist()) == ([10], [10])
    assert (rows.leaf.tolist(), rows.sampled_at.tolist()) == ([ROOT], [11])


def test_a_fall_out_keeps_what_matched_and_runs_the_rest() -> None:
    tree = grown()
    done = tree.commit(9, ints(5, 1, 2))
    assert not done.fall_in
    assert done.matched == 1
    assert (tree.cached, tree.root_position) == (11, 12)
    assert len(tree) == len(tree.candidates.parent) == 0
    assert prefill(tree).position.tolist() == [11, 12]


def test_commits_to_a_stopped_draft_only_add_tokens() -> None:
    tree = DraftTree(4)
    tree.commit(3, ints(5))
    tree.commit(4, ints(6, 7))
    assert (tree.cached, tree.root_position) == (0, 6)


def test_ids_are_never_used_again() -> None:
    tree = grown()
    tree.commit(9, ints(1))
    expand(tree, ints(ROOT), (5, -0.5), (6, -1.5))
    assert sent(tree.send(64, 8, 8)) == [(5, 0, 5), (6, 0, 6)]


@pytest.mark.parametrize(("position", "tokens"), [(8, ints(5)), (10, ints(5)), (9, ints())])
def test_a_commit_from_elsewhere_is_a_violation(position: int, tokens: Ints) -> None:
    with pytest.raises(ProtocolViolation, match="the root is at 9"):
        grown().commit(position, tokens)
