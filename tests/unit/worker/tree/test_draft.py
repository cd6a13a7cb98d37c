"""The draft's copy: leaves, candidates, limits, and what commits do to its KV."""

import numpy as np
import pytest

from outrider.worker.errors import ProtocolViolation
from outrider.worker.tree.draft import DraftTree
from outrider.worker.tree.growth import Growth, Ints
from outrider.worker.tree.walk import ROOT


def ints(*values: int) -> Ints:
    return np.array(values, np.int32)


def expand(tree: DraftTree, leaves: Ints, *children: tuple[int, float], each: int = 2) -> None:
    """Run the rows of `leaves` and offer (token, logprob) children, `each` per leaf."""
    tree.mark_prefilled(len(tree.pending))
    tree.mark_expanded(leaves, tree.rows(leaves).slots)
    tokens = np.array([token for token, _ in children], np.int32).reshape(-1, each)
    logprobs = np.array([logprob for _, logprob in children], np.float32).reshape(-1, each)
    tree.offer(leaves, tokens, logprobs)


def sent(growth: Growth | None) -> list[tuple[int, int, int]]:
    """(id, parent id, token) of every node sent."""
    assert growth is not None
    ids = range(growth.first_id, growth.first_id + len(growth.tokens))
    return list(zip(ids, growth.parents.tolist(), growth.tokens.tolist(), strict=True))


def grown() -> DraftTree:
    """Root at 9 with nodes 1 (token 5) and 2 (token 6); 1 has 3 (token 7) and 4 (token 8)."""
    tree = DraftTree(10, root_token=3)
    expand(tree, tree.leaves(4, 8), (5, -0.5), (6, -1.5))
    tree.send(64, 8)
    expand(tree, ints(0), (7, -0.25), (8, -2.0))
    tree.send(64, 8)
    return tree


def test_a_new_session_runs_its_tokens_and_then_its_root() -> None:
    tree = DraftTree(10, root_token=3)
    assert tree.pending == range(9)
    assert tree.leaves(4, 8).tolist() == [ROOT]
    rows = tree.rows(ints(ROOT))
    assert (rows.tokens.tolist(), rows.positions.tolist(), rows.slots.tolist()) == ([3], [9], [9])
    with pytest.raises(ValueError, match="before positions"):
        tree.mark_expanded(ints(ROOT), rows.slots)
    expand(tree, ints(ROOT), (5, -0.5), (6, -1.5))
    assert sent(tree.send(64, 8)) == [(1, 0, 5), (2, 0, 6)]


def test_leaves_come_best_first_and_are_expanded_once() -> None:
    tree = grown()
    assert tree.leaves(8, 8).tolist() == [2, 1, 3]  # scores -0.75, -1.5, -2.5
    assert tree.leaves(2, 8).tolist() == [2, 1]
    np.testing.assert_allclose(tree.nodes.score[tree.leaves(8, 8)], [-0.75, -1.5, -2.5])


def test_a_leaf_at_the_depth_limit_is_not_expanded() -> None:
    assert grown().leaves(8, 2).tolist() == [1]


def test_nothing_grows_below_an_end_token() -> None:
    tree = DraftTree(1, root_token=3, end_tokens=ints(5))
    expand(tree, tree.leaves(4, 8), (5, -0.5), (6, -1.5))
    tree.send(64, 8)
    assert tree.leaves(8, 8).tolist() == [1]


def test_rows_see_their_ancestors_slots() -> None:
    tree = grown()
    rows = tree.rows(ints(2, 1))
    assert rows.slots.tolist() == [11, 12]
    assert rows.positions.tolist() == [11, 10]
    assert rows.prefix.tolist() == [10, 10]
    assert rows.ancestors.tolist() == [[10, 11], [12, -1]]


def test_nodes_ahead_and_max_new_nodes_bound_what_is_sent_and_the_rest_waits() -> None:
    tree = DraftTree(1, root_token=3)
    children = [(token, -float(token)) for token in range(1, 7)]
    expand(tree, tree.leaves(1, 8), *children, each=6)
    assert sent(tree.send(3, 2)) == [(1, 0, 1), (2, 0, 2)]
    assert sent(tree.send(3, 2)) == [(3, 0, 3)]
    assert tree.send(3, 2) is None
    assert tree.send(0, 2) is None
    assert len(tree.candidates.parent) == 3


def test_the_best_candidates_are_kept_when_there_are_too_many() -> None:
    tree = DraftTree(1, root_token=3, candidate_capacity=2)
    expand(tree, tree.leaves(1, 8), (1, -3.0), (2, -1.0), (3, -np.inf), (4, -2.0), each=4)
    assert sent(tree.send(8, 8)) == [(1, 0, 2), (2, 0, 4)]


def test_a_fall_in_runs_nothing_and_moves_kv() -> None:
    tree = grown()
    expand(tree, ints(1), (5, -0.1), (6, -4.0))  # node 2 takes slot 11
    expand(tree, ints(2), (4, -0.5), (2, -4.0))  # node 3 takes slot 12
    done = tree.commit(9, ints(5))
    assert done.fall_in
    assert done.matched == 1
    assert len(tree.pending) == 0
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
    growth = tree.send(64, 8)
    assert sent(growth) == [(5, 3, 4), (6, 3, 2)]
    assert growth is not None
    assert growth.root_position == 10


def test_a_new_root_without_kv_is_the_best_leaf() -> None:
    tree = grown()
    assert tree.commit(9, ints(6)).fall_in
    assert len(tree.pending) == 0
    assert tree.leaves(8, 8).tolist() == [ROOT]
    assert tree.rows(ints(ROOT)).slots.tolist() == [10]


def test_a_fall_out_keeps_what_matched_and_runs_the_rest() -> None:
    tree = grown()
    done = tree.commit(9, ints(5, 1, 2))
    assert not done.fall_in
    assert done.matched == 1
    assert tree.pending == range(11, 12)  # token 1; token 2 is the root, a leaf
    assert tree.root_token == 2
    assert len(tree) == len(tree.candidates.parent) == 0


def test_commits_to_a_stopped_draft_only_add_tokens() -> None:
    tree = DraftTree(4, root_token=3)
    tree.commit(3, ints(5))
    tree.commit(4, ints(6, 7))
    assert tree.pending == range(6)
    assert tree.root_token == 7


def test_ids_are_never_used_again() -> None:
    tree = grown()
    tree.commit(9, ints(1))
    expand(tree, tree.leaves(1, 8), (5, -0.5), (6, -1.5))
    assert sent(tree.send(64, 8)) == [(5, 0, 5), (6, 0, 6)]


@pytest.mark.parametrize(("position", "tokens"), [(8, ints(5)), (10, ints(5)), (9, ints())])
def test_a_commit_from_elsewhere_is_a_violation(position: int, tokens: Ints) -> None:
    with pytest.raises(ProtocolViolation, match="the root is at 9"):
        grown().commit(position, tokens)
