"""The mirror: id states, local nodes, bounds, and validation of hostile growth."""

import doctest
from typing import Any

import numpy as np
import pytest

from outrider.worker.errors import ProtocolViolation
from outrider.worker.tree import walk as walk_module
from outrider.worker.tree.growth import Growth, Ints
from outrider.worker.tree.mirror import DRAFT, SUFFIX, Mirror
from outrider.worker.tree.walk import ROOT, committed_tokens, paths, walk

EVERYTHING = np.ones(1000, np.bool_)


def ints(*values: int) -> Ints:
    return np.array(values, np.int32)


def grow(
    mirror: Mirror, root_position: int, first_id: int, *nodes: tuple[int, int], logprob: float = -1
) -> int:
    """Grow (parent id, token) nodes."""
    parents = np.array([parent for parent, _ in nodes], np.int64)
    tokens = ints(*(token for _, token in nodes))
    logprobs = np.full(len(nodes), logprob, np.float32)
    growth = Growth(root_position, first_id, parents, tokens, logprobs)
    return mirror.receive(growth, len(nodes), EVERYTHING)


def test_the_usage_example_of_the_glossary_runs() -> None:
    outcome = doctest.testmod(walk_module)
    assert outcome.attempted > 5
    assert outcome.failed == 0


def test_growth_on_live_parents_becomes_live_nodes() -> None:
    mirror = Mirror(10)
    assert grow(mirror, 10, 1, (0, 5), (1, 6), (0, 7), (2, 8)) == 0
    assert mirror.parent.tolist() == [ROOT, 0, ROOT, 1]
    assert mirror.token.tolist() == [5, 6, 7, 8]
    assert mirror.depth.tolist() == [1, 2, 1, 3]
    assert mirror.first_id.tolist() == [1, 2, 3, 4]


def test_a_fall_in_keeps_the_subtree_in_order() -> None:
    mirror = Mirror(10)
    grow(mirror, 10, 1, (0, 5), (0, 7), (1, 6), (1, 9), (3, 8))
    assert mirror.commit(ints(5))
    assert mirror.root_position == 11
    assert mirror.first_id.tolist() == [3, 4, 5]
    assert mirror.parent.tolist() == [ROOT, ROOT, 0]
    assert mirror.depth.tolist() == [1, 1, 2]


def test_a_fall_out_empties_the_mirror() -> None:
    mirror = Mirror(10)
    grow(mirror, 10, 1, (0, 5), (1, 6))
    assert not mirror.commit(ints(5, 7))
    assert len(mirror) == 0
    assert mirror.root_position == 12


def test_growth_in_flight_during_a_commit_is_used() -> None:
    mirror = Mirror(10)
    grow(mirror, 10, 1, (0, 5))
    mirror.commit(ints(5, 6, 7))
    # The draft did not know: node 2 is c[12], node 3 is c[13], node 4 a child of the root.
    assert grow(mirror, 10, 2, (1, 6), (2, 7), (3, 8)) == 0
    assert mirror.token.tolist() == [8]
    assert mirror.parent.tolist() == [ROOT]
    assert mirror.first_id.tolist() == [4]


def test_growth_that_the_commit_contradicts_is_dead_for_ever() -> None:
    mirror = Mirror(10)
    grow(mirror, 10, 1, (0, 5))
    mirror.commit(ints(5, 6))
    assert grow(mirror, 10, 2, (1, 9), (2, 6), (3, 1)) == 3
    assert len(mirror) == 0


def test_parent_zero_is_read_against_the_drafts_root() -> None:
    mirror = Mirror(10)
    mirror.commit(ints(5))
    mirror.commit(ints(6))
    assert grow(mirror, 11, 1, (0, 6), (1, 7)) == 0
    assert mirror.token.tolist() == [7]
    assert grow(mirror, 12, 3, (0, 9)) == 0
    assert mirror.token.tolist() == [7, 9]


def test_ids_committed_before_the_acknowledged_root_are_forgotten() -> None:
    mirror = Mirror(10)
    grow(mirror, 10, 1, (0, 5), (1, 6))
    mirror.commit(ints(5, 6))
    assert grow(mirror, 12, 3, (1, 6), (0, 4)) == 1
    assert mirror.token.tolist() == [4]


def test_a_long_silent_draft_still_finds_its_root() -> None:
    mirror = Mirror(0)
    for token in range(1, 500):
        mirror.commit(ints(token))
    assert grow(mirror, 0, 1, *((i, i + 1) for i in range(499)), (499, 7)) == 0
    assert mirror.token.tolist() == [7]


def test_a_local_node_gets_an_id_when_the_draft_has_it_too() -> None:
    mirror = Mirror(10)
    assert mirror.add_local(ints(ROOT, 0, 1), ints(5, 6, 7), np.full(3, -2, np.float32)) == 3
    assert mirror.proposer.tolist() == [SUFFIX] * 3
    grow(mirror, 10, 1, (0, 5), (1, 8))
    assert mirror.first_id.tolist() == [1, 0, 0, 2]
    assert mirror.proposer.tolist() == [DRAFT, SUFFIX, SUFFIX, DRAFT]
    assert mirror.logprob.tolist() == [-1, -2, -2, -1]
    assert mirror.parent.tolist() == [ROOT, 0, 1, 0]


def test_a_local_chain_continues_through_nodes_that_exist() -> None:
    mirror = Mirror(10)
    grow(mirror, 10, 1, (0, 4), (0, 5))
    assert mirror.add_local(ints(ROOT, 2, 3), ints(5, 6, 7), np.zeros(3, np.float32)) == 2
    assert mirror.parent.tolist() == [ROOT, ROOT, 1, 2]


def test_local_nodes_never_take_a_drafts_room() -> None:
    mirror = Mirror(10, capacity=3, local_capacity=2)
    assert mirror.add_local(ints(-1, -1, -1), ints(1, 2, 3), np.zeros(3, np.float32)) == 2
    assert grow(mirror, 10, 1, (0, 5), (0, 6), (0, 7)) == 0
    assert len(mirror) == 5


def test_a_flood_is_cut_at_the_capacity_and_grows_no_memory() -> None:
    mirror = Mirror(10, capacity=4, local_capacity=2)
    assert grow(mirror, 10, 1, *((0, token) for token in range(9))) == 5
    assert grow(mirror, 10, 100, *((0, 1) for _ in range(50))) == 46
    assert len(mirror) == 4
    mirror.commit(ints(3))
    assert grow(mirror, 11, 500, (0, 1)) == 0


def test_a_lost_link_leaves_nodes_without_ids() -> None:
    mirror = Mirror(10, local_capacity=2)
    grow(mirror, 10, 1, (0, 5), (1, 6), (2, 7))
    mirror.detach()
    assert mirror.token.tolist() == [5, 6]
    assert mirror.first_id.tolist() == [0, 0]
    assert mirror.commit(ints(5))
    mirror.attach()
    assert grow(mirror, 11, 1, (0, 6), (1, 9)) == 0
    assert mirror.first_id.tolist() == [1, 2]
    assert mirror.parent.tolist() == [ROOT, 0]


def test_rounding_above_zero_becomes_zero() -> None:
    mirror = Mirror(10)
    grow(mirror, 10, 1, (0, 5), logprob=1e-6)
    assert mirror.logprob.tolist() == [0.0]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"tokens": ints(1)}, "2 parents, 1 tokens"),
        ({"logprobs": np.zeros(3, np.float32)}, "3 log-probabilities"),
        ({"granted": 1}, "2 nodes in one message; 1 were granted"),
        ({"root_position": 10}, "root position 10 is not from 11"),
        ({"root_position": 13}, "to 12, the target's"),
        ({"root_position": -1}, "root position -1"),
        ({"first_id": 3}, "id 3 does not follow id 3"),
        ({"first_id": 0}, "id 0 does not follow"),
        ({"first_id": 2**63 - 1}, "does not follow"),
        ({"parents": np.array([0, 5], np.int64)}, "parent 5 of node 5"),
        ({"parents": np.array([2**64 - 1, 0], np.uint64).view(np.int64)}, "parent -1 of node 4"),
        ({"tokens": ints(99, 100)}, "token 100 of node 5 is outside the vocabulary of 100"),
        ({"tokens": ints(-1, 1)}, "token -1 of node 4"),
        ({"tokens": ints(7, 1)}, "token 7 of node 4 is one on which the tokenizers differ"),
        ({"logprobs": np.array([-1, np.nan], np.float32)}, "log-probability nan of node 5"),
        ({"logprobs": np.array([-np.inf, -1], np.float32)}, "log-probability -inf of node 4"),
        ({"logprobs": np.array([0.5, -1], np.float32)}, "log-probability 0.5 of node 4"),
    ],
)
def test_what_no_honest_draft_sends_is_refused(change: dict[str, Any], message: str) -> None:
    mirror = Mirror(10)
    grow(mirror, 10, 1, (0, 5), (1, 6), (0, 7))
    mirror.commit(ints(5, 6))
    grow(mirror, 11, 3)
    allowed = np.ones(100, np.bool_)
    allowed[7] = False
    parents, logprobs = np.array([0, 4], np.int64), np.array([-1, 1e-6], np.float32)
    honest = Growth(12, 4, parents, ints(1, 2), logprobs)
    granted = change.pop("granted", 2)
    before = mirror.tables.numbers.tolist()
    with pytest.raises(ProtocolViolation, match=message):
        mirror.receive(honest._replace(**change), granted, allowed)
    assert mirror.tables.numbers.tolist() == before
    assert mirror.receive(honest, 2, allowed) == 0


def test_rows_know_their_ancestors_in_depth_order() -> None:
    parent, depth = ints(ROOT, 0, ROOT, 1), ints(1, 2, 1, 3)
    rows = paths(parent, depth, ints(0, 2, 1, 3))
    assert rows.parent.tolist() == [ROOT, ROOT, 0, 2]
    assert rows.depth.tolist() == [1, 1, 2, 3]
    assert rows.ancestors.tolist() == [[0, -1, -1], [1, -1, -1], [0, 2, -1], [0, 2, 3]]


def test_a_row_without_its_parent_is_refused() -> None:
    parent, depth = ints(ROOT, 0), ints(1, 2)
    with pytest.raises(ValueError, match="without, or before, its parent"):
        paths(parent, depth, ints(1))
    with pytest.raises(ValueError, match="without, or before, its parent"):
        paths(parent, depth, ints(1, 0))


def test_no_rows_have_no_ancestors() -> None:
    assert paths(ints(), ints(), ints()).ancestors.shape == (0, 0)


@pytest.mark.parametrize(
    ("sampled", "end_tokens", "limit", "committed"),
    [
        (ints(5, 6, 7, 0), (), 9, [5, 6, 7]),  # both rows of the path, then the target's own
        (ints(5, 4, 7, 0), (), 9, [5, 4]),
        (ints(9, 6, 7, 0), (), 9, [9]),
        (ints(8, 6, 7, 3), (), 9, [8, 3]),
        (ints(5, 6, 7, 0), (6,), 9, [5, 6]),
        (ints(5, 6, 7, 0), (5,), 9, [5]),
        (ints(5, 6, 7, 0), (), 2, [5, 6]),
        (ints(5, 6, 7, 0), (), 1, [5]),
    ],
)
def test_a_walk_commits_what_plain_decoding_would(
    sampled: Ints, end_tokens: tuple[int, ...], limit: int, committed: list[int]
) -> None:
    row_parent, row_token = ints(ROOT, 0, ROOT), ints(5, 6, 8)
    accepted = walk(row_parent, row_token, sampled, ints(*end_tokens), limit)
    assert committed_tokens(accepted, row_token, sampled).tolist() == committed
    assert len(accepted) == len(committed) - 1


def test_what_a_local_source_thinks_of_a_drafts_node_is_kept_beside() -> None:
    """Whichever of the two comes first."""
    for draft_first in (True, False):
        mirror = Mirror(root_position=3)
        proposers = [
            lambda m=mirror: grow(m, 3, 1, (0, 5)),
            lambda m=mirror: m.add_local(ints(ROOT), ints(5), np.full(1, -2, np.float32)),
        ]
        for propose in proposers if draft_first else reversed(proposers):
            propose()
        nodes = mirror.tables.nodes
        assert (nodes.proposer[0], nodes.logprob[0]) == (DRAFT, -1)
        assert (nodes.other[0], nodes.other_logprob[0]) == (SUFFIX, -2)
        assert len(mirror) == mirror.drafted == 1
