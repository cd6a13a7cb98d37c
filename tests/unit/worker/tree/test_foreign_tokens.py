"""The tree of a draft that reads a target's tokens as its own ids, some of them as several."""

import numpy as np
import pytest

from outrider.worker.errors import ProtocolViolation
from outrider.worker.tree.draft import DraftTree
from outrider.worker.tree.reading import Reading
from outrider.worker.tree.walk import ROOT
from tests.unit.worker.tree.test_draft import expand, ints, leaf_rows, prefill, sent

READING = Reading(
    first=ints(0, 1, 2, 3, 5, 8),
    ids=ints(70, 71, 72, 71, 72, 70, 71, 72),
    known=100,
    longest=3,
    pairs=np.array([1 << 32 | 2], np.int64),
    merged=ints(3),
)
"""Tokens 0 to 2 are 70 to 72, token 3 is 71 and 72, token 4 all three."""


def opened() -> DraftTree:
    """A text of 10 tokens of the target that the draft reads as 12."""
    return DraftTree(12, reading=READING, tokens_committed=10)


def test_rows_are_the_draft_s_ids_at_its_positions_and_noise_is_the_target_s() -> None:
    tree = opened()
    assert prefill(tree).sampled_at.tolist() == [10]
    expand(tree, ints(ROOT), (1, -0.5), (0, -1.0))
    growth = tree.send(64, 8, 8)
    assert growth is not None
    assert growth.root_position == tree.target_position == 9
    rows = leaf_rows(tree, 2, 8)
    assert (rows.token.tolist(), rows.position.tolist()) == ([71, 70], [12, 12])
    assert rows.sampled_at.tolist() == [11, 11]


def test_two_tokens_that_make_a_third_bring_it_in_their_place() -> None:
    tree = opened()
    expand(tree, ints(ROOT), (1, -0.5), (0, -1.0))
    first = sent(tree.send(64, 8, 8))
    expand(tree, ints(0), (2, -0.25), (1, -3.0))
    more = sent(tree.send(64, 8, 8))
    assert first == [(1, 0, 1), (2, 0, 0)]
    assert more[:2] == [(3, 1, 2), (4, 0, 3)] or more[:2] == [(3, 0, 3), (4, 1, 2)]
    (node,) = np.flatnonzero(tree.nodes.token == 3)
    assert (tree.nodes.parent[node], tree.nodes.depth[node]) == (ROOT, 1)
    assert tree.nodes.logprob[node] == tree.nodes.score[node] == -0.75
    assert node not in leaf_rows(tree, 8, 8).leaf, "it is no row"


def test_a_commit_of_such_a_token_falls_in_and_leaves_its_ids_to_run() -> None:
    tree = opened()
    expand(tree, ints(ROOT), (1, -0.5), (0, -1.0))
    tree.send(64, 8, 8)
    expand(tree, ints(0), (2, -0.25), (1, -3.0))
    tree.send(64, 8, 8)
    reroot = tree.commit(9, ints(3))
    assert (reroot.fall_in, len(tree), reroot.sources.tolist()) == (True, 0, [])
    assert (tree.target_position, tree.root_position, tree.cached) == (10, 13, 12)
    assert tree.read(ints(3)).tolist() == [71, 72]


def test_a_commit_moves_the_draft_s_root_by_ids_and_the_target_s_by_tokens() -> None:
    tree = opened()
    expand(tree, ints(ROOT), (1, -0.5), (0, -1.0))
    tree.send(64, 8, 8)
    assert not tree.commit(9, ints(1, 4, 2)).fall_in
    assert (tree.target_position, tree.root_position) == (12, 11 + 1 + 3 + 1)
    with pytest.raises(ProtocolViolation, match="the root is at 12"):
        tree.commit(16, ints(1))


def test_the_parts_of_a_token_are_not_that_token() -> None:
    """The target committed 3; the draft holds 1 and 2, which say the same: both fall out."""
    tree = opened()
    expand(tree, ints(ROOT), (1, -0.5), each=1)
    tree.send(64, 8, 8)
    reroot = tree.commit(9, ints(3))
    assert (reroot.fall_in, reroot.matched, len(tree)) == (False, 0, 0)
