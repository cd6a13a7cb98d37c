"""The leader by itself: what leaves in which order, and what a result sets off."""

import dataclasses
import math
from collections import Counter, deque

import numpy as np
import pytest

from outrider.worker.errors import TooLong
from outrider.worker.kv.block_pool import BLOCK, BlockPool
from outrider.worker.messages import Finish
from outrider.worker.pipeline.leader import Leader, LeaderLimits
from outrider.worker.pipeline.records import Begin, End, Move, Record, Results, Segment
from outrider.worker.pipeline.segment_size import SegmentPlan
from outrider.worker.pipeline.sequence import PipelinedSequence
from outrider.worker.target.pass_record import PassRecord
from outrider.worker.tree.growth import Growth
from outrider.worker.tree.mirror import DRAFT, SUFFIX
from outrider.worker.tree.walk import ROOT
from tests.unit.worker.pipeline.build import cancel, submit

PROMPT = [3, 4, 5]


def make_leader(
    rows: int = 4, in_flight: int = 8, prompt_rows: int = 16, running: int = 2
) -> Leader:
    plan = SegmentPlan(rows, in_flight, prompt_rows)
    pool = BlockPool(4 * running, 4 * BLOCK)
    return Leader(pool, plan, LeaderLimits(max_running=running, tree_blocks=1))


def sent(leader: Leader) -> list[Record]:
    """Fill, and take all that leaves."""
    while leader.fill():
        pass
    records = list(leader.outgoing)
    leader.outgoing.clear()
    return records


def segments(leader: Leader) -> list[Segment]:
    return [record for record in sent(leader) if isinstance(record, Segment)]


def answer(
    leader: Leader, segment: Segment, tokens: dict[int, int]
) -> list[PassRecord[PipelinedSequence]]:
    """Return a segment with what was sampled, by row number."""
    rows, none = np.array(list(tokens), np.int64), np.zeros((len(tokens), 0))
    values = np.array(list(tokens.values()), np.int32)
    logprobs = np.full(len(tokens), np.nan, np.float32)
    return leader.receive(
        Results(
            segment.number, rows, values, logprobs, none.astype(np.int32), none.astype(np.float32)
        )
    )


def chain(leader: Leader, tokens: list[int], logprob: float = -0.1, proposer: int = DRAFT) -> None:
    """Grow a chain from the root of the only request, as a draft that is gone has left it."""
    mirror = leader.running[0].mirror
    first = len(mirror)
    parents = [ROOT, *range(first, first + len(tokens) - 1)]
    logprobs = np.full(len(tokens), logprob, np.float32)
    mirror.add_local(np.array(parents, np.int32), np.array(tokens, np.int32), logprobs, proposer)


@pytest.mark.parametrize(
    ("pays", "left"),
    [(0.5, 5), (0.95, 1), (math.inf, 1)],
)
def test_nodes_of_the_text_leave_where_they_pay_whatever_the_plan_of_trees(
    pays: float, left: int
) -> None:
    leader = make_leader(rows=1)
    leader.plan = dataclasses.replace(leader.plan, most_rows=5, pays=pays)
    leader.submit(submit(0, PROMPT, 20))
    (first,) = segments(leader)
    answer(leader, first, {int(first.rows[-1]): 9})
    chain(leader, [1, 2, 3, 4, 5, 6], proposer=SUFFIX)
    segment = segments(leader)[0]
    assert segment.count == left


def decoding(**plan: object) -> Leader:
    """A leader with one request, of which the first token is committed and its root has not left;
    the mirror has a draft."""
    leader = make_leader(rows=2)
    leader.submit(submit(0, PROMPT, 60))
    (first,) = segments(leader)
    answer(leader, first, {int(first.rows[-1]): 9})
    leader.plan = dataclasses.replace(leader.plan, **plan)  # type: ignore[arg-type]
    leader.running[0].mirror.attach()
    return leader


def grow(leader: Leader, parents: list[int], tokens: list[int], logprob: float = -0.3) -> int:
    """The draft of the only request sends nodes; return the id of the first."""
    mirror = leader.running[0].mirror
    first, count = mirror.last_id + 1, len(tokens)
    logprobs = np.full(count, logprob, np.float32)
    columns = np.array(parents, np.int64), np.array(tokens, np.int32), logprobs
    mirror.receive(Growth(mirror.root_position, first, *columns), 1024, np.ones(5000, np.bool_))
    return first


def test_a_token_is_that_of_what_its_row_left_for() -> None:
    leader = decoding(most_rows=5, pays=0.1)
    chain(leader, [1, 2], proposer=SUFFIX)
    (segment,) = segments(leader)
    assert segment.count == 3
    grow(leader, [0, 1], [1, 2])
    assert leader.running[0].mirror.proposer.tolist() == [DRAFT, DRAFT], "it has named both since"
    (done,) = answer(leader, segment, dict(zip(segment.rows.tolist(), [1, 2, 3], strict=True)))
    assert done.sources is not None
    assert done.sources.accepted[SUFFIX] == leader.running[0].source_rows[SUFFIX] == 2
    assert done.sources.accepted[DRAFT] == leader.running[0].source_rows[DRAFT] == 0


def test_a_node_that_two_sources_name_is_sent_for_the_one_that_may_run() -> None:
    leader = decoding(most_rows=5, pays=0.1)
    chain(leader, [1, 2], proposer=SUFFIX)
    grow(leader, [0, 1, 0], [1, 2, 7])
    leader.running[0].sources = 1 << SUFFIX
    (segment,) = segments(leader)
    assert segment.tokens.tolist() == [9, 1, 2]
    assert leader.running[0].source_rows[SUFFIX] == 2


def test_rows_of_a_draft_and_of_the_text_do_not_take_each_others_place() -> None:
    leader = decoding(rows=2, most_rows=8, pays=0.05)
    chain(leader, [1, 2, 3, 4], logprob=-0.2, proposer=SUFFIX)
    grow(leader, [0], [7], logprob=-0.01)
    (segment,) = segments(leader)[:1]
    assert {9, 7, 1, 2, 3} <= set(segment.tokens.tolist())


def test_no_segment_has_more_rows_than_all_kinds_may_have() -> None:
    leader = decoding(rows=2, most_rows=4, pays=0.0)
    chain(leader, [1, 2, 3, 4, 5], logprob=-0.1, proposer=SUFFIX)
    grow(leader, [0, 1], [7, 8], logprob=-0.01)
    assert segments(leader)[0].count == 4


def test_a_draft_that_hangs_nodes_on_those_of_the_text_sends_none_before_its_parent() -> None:
    """A text's node gets an id of the draft, but not its name, once the draft's own room is full:
    what is named below it is the draft's."""
    leader = decoding(rows=8, most_rows=8, pays=0.9)
    chain(leader, [50, 51], logprob=-0.6, proposer=SUFFIX)
    mirror = leader.running[0].mirror
    for first in range(100, 100 + 1024, 64):
        grow(leader, [0] * 64, [*range(first, first + 64)], logprob=-8.0)
    grandparent = grow(leader, [0], [50])
    parent = grow(leader, [grandparent], [51])
    assert mirror.proposer[:2].tolist() == [SUFFIX, SUFFIX]
    first_segment = segments(leader)[0]
    answer(leader, first_segment, {int(first_segment.rows[0]): 50})
    grow(leader, [parent], [52], logprob=-0.01)
    assert mirror.token[:2].tolist() == [51, 52]
    assert mirror.proposer[:2].tolist() == [SUFFIX, DRAFT]
    left = [segment.tokens.tolist() for segment in segments(leader)]
    assert left, "the root leaves"
    assert 52 not in np.concatenate(left)


def test_nodes_of_a_draft_keep_to_the_plan_of_trees() -> None:
    leader = make_leader(rows=2)
    leader.plan = dataclasses.replace(leader.plan, most_rows=5, pays=0.0)
    leader.submit(submit(0, PROMPT, 20))
    (first,) = segments(leader)
    answer(leader, first, {int(first.rows[-1]): 9})
    chain(leader, [1, 2, 3])
    assert segments(leader)[0].count == 2


def test_a_prompt_leaves_with_its_root_and_only_the_root_is_sampled() -> None:
    leader = make_leader()
    leader.submit(submit(0, PROMPT, 10))
    begin, segment = sent(leader)
    assert isinstance(begin, Begin)
    assert begin.tokens.tolist() == PROMPT
    assert isinstance(segment, Segment)
    assert segment.tokens.tolist() == PROMPT
    assert segment.positions.tolist() == [0, 1, 2]
    assert segment.sample.tolist() == [False, False, True]
    assert not segment.ancestors.any()
    assert segment.hidden is None


def test_nodes_leave_in_score_order_with_parents_first_and_are_not_sent_again() -> None:
    leader = make_leader(rows=2)
    leader.submit(submit(0, PROMPT, 10))
    sent(leader)
    chain(leader, [1, 2], logprob=-2.0)
    chain(leader, [6, 7], logprob=-0.1)
    first, second = segments(leader)
    assert first.tokens.tolist() == [6, 7]
    assert second.tokens.tolist() == [1, 2]
    assert np.unpackbits(first.ancestors, axis=1, bitorder="little").sum(axis=1).tolist() == [1, 2]
    assert sent(leader) == []
    chain(leader, [6, 7, 8])
    (late,) = segments(leader)
    assert late.tokens.tolist() == [8], "equal paths are one node, and the late one is new"


def test_a_choice_that_is_in_flight_becomes_the_root_and_nothing_new_leaves() -> None:
    leader = make_leader()
    leader.submit(submit(0, PROMPT, 10))
    (root,) = segments(leader)
    chain(leader, [6, 7])
    chain(leader, [1])
    (nodes,) = segments(leader)
    (committed,) = answer(leader, root, {2: 6})
    assert committed.tokens.tolist() == [6]
    assert committed.survived
    (move,) = sent(leader)
    assert isinstance(move, Move)
    slot = dict(zip(nodes.tokens.tolist(), nodes.slots.tolist(), strict=True))
    assert move.sources.tolist() == [slot[6]]
    assert move.destinations.tolist() == [leader.running[0].kv.block_table.table[0] * BLOCK + 3]
    assert move.freed.tolist() == [slot[1]]
    assert answer(leader, nodes, {4: 9}) == [], "only a row below the root is back"


def test_a_walk_goes_on_through_all_that_is_back() -> None:
    leader = make_leader()
    leader.submit(submit(0, PROMPT, 10))
    (root,) = segments(leader)
    chain(leader, [6, 7, 8])
    (nodes,) = segments(leader)
    assert answer(leader, nodes, dict(zip(nodes.rows.tolist(), [7, 8, 2], strict=True))) == []
    (committed,) = answer(leader, root, {2: 6})
    assert committed.tokens.tolist() == [6, 7, 8, 2]
    assert not committed.survived
    move, new_root = sent(leader)
    assert isinstance(move, Move)
    assert len(move.sources) == 3
    assert isinstance(new_root, Segment)
    assert new_root.tokens.tolist() == [2]


def test_after_a_fall_out_the_new_root_leaves_at_once_though_the_way_was_full() -> None:
    leader = make_leader(rows=1, in_flight=3)
    leader.submit(submit(0, PROMPT, 10))
    (root,) = segments(leader)
    chain(leader, [6, 7, 8])
    assert len(segments(leader)) == 2
    assert not leader.fill()
    answer(leader, root, {2: 9})
    move, new_root = sent(leader)
    assert isinstance(move, Move)
    assert len(move.freed) == 2
    assert isinstance(new_root, Segment)
    assert new_root.tokens.tolist() == [9]


def test_a_result_that_was_overtaken_is_ignored_though_its_slot_is_in_use_again() -> None:
    leader = make_leader()
    leader.submit(submit(0, PROMPT, 10))
    (root,) = segments(leader)
    chain(leader, [6])
    (old,) = segments(leader)
    answer(leader, root, {2: 9})
    (new_root,) = segments(leader)
    chain(leader, [1])
    (new,) = segments(leader)
    assert new.slots.tolist() == old.slots.tolist()
    assert answer(leader, old, {int(old.rows[0]): 5}) == []
    (committed,) = answer(leader, new_root, {int(new_root.rows[0]): 1})
    assert committed.tokens.tolist() == [1], "the old row's token is not the new row's"


@pytest.mark.parametrize(("token", "finish"), [(11, Finish.STOP), (-1, Finish.FAILED)])
def test_a_sequence_ends_by_an_end_token_and_where_nothing_can_be_sampled(
    token: int, finish: Finish
) -> None:
    leader = make_leader()
    leader.submit(submit(0, PROMPT, 10, ends=(11,)))
    (root,) = segments(leader)
    (committed,) = answer(leader, root, {2: token})
    assert committed.finish is finish
    assert committed.tokens.tolist() == [token] * (token >= 0)
    assert [type(record) for record in sent(leader)] == [End]
    assert leader.pool.used == 0


def test_nodes_that_no_answer_can_reach_have_no_row() -> None:
    leader = make_leader(rows=16)
    leader.submit(submit(0, PROMPT, 3, ends=(11,)))
    sent(leader)
    chain(leader, [6, 7, 8, 9])
    chain(leader, [11, 1])
    (nodes,) = segments(leader)
    assert nodes.tokens.tolist() == [6, 7], "three tokens are the root's, and those after 6 and 7"


def test_prompts_travel_in_chunks_beside_other_sequences() -> None:
    leader = make_leader(prompt_rows=3)
    leader.submit(submit(0, PROMPT, 10))
    (first,) = segments(leader)
    leader.submit(submit(1, [1] * 6, 10))
    chain(leader, [6])
    one, two = segments(leader)
    assert one.sequence.tolist() == [0, 1, 1, 1]
    assert two.positions.tolist() == [3, 4, 5]
    assert two.sample.tolist() == [False, False, True]
    assert first.number < one.number < two.number


def test_a_common_beginning_is_computed_once_for_requests_after_another() -> None:
    leader = make_leader(prompt_rows=200)
    prompt = [i % 10 for i in range(130)]
    leader.submit(submit(0, prompt, 1))
    (segment,) = segments(leader)
    answer(leader, segment, {129: 2})
    sent(leader)
    leader.submit(submit(1, prompt, 1))
    begin, rest = sent(leader)
    assert isinstance(begin, Begin)
    assert len(begin.prefix_blocks) == 2
    assert isinstance(rest, Segment)
    assert rest.positions.tolist() == [128, 129]


def test_what_a_request_without_a_choice_computed_is_no_prefix_for_others() -> None:
    leader = make_leader(prompt_rows=200)
    prompt = [i % 10 for i in range(130)]
    leader.submit(submit(0, prompt, 5))
    (segment,) = segments(leader)
    (committed,) = answer(leader, segment, {129: -1})
    assert committed.finish is Finish.FAILED
    sent(leader)
    leader.submit(submit(1, prompt, 5))
    begin, _ = sent(leader)
    assert isinstance(begin, Begin)
    assert len(begin.prefix_blocks) == 0


@pytest.mark.parametrize("drafted", [True, False])
def test_more_sequences_than_rows_under_way_take_turns(drafted: bool) -> None:
    leader = make_leader(rows=1, in_flight=2, running=8)
    for request in range(8):
        leader.submit(submit(request, [request + 1, 3, 4], 100))
    under_way: deque[Segment] = deque()
    tokens: Counter[int] = Counter()
    for turn in range(80):
        if drafted and turn > 10:
            chain(leader, [9] * 3)
        under_way += segments(leader)
        segment = under_way.popleft()
        sampled = {int(row): 9 for row in segment.rows[segment.sample]}
        for committed in answer(leader, segment, sampled):
            tokens[committed.sequence.submit.request] += len(committed.tokens)
    assert len(tokens) == 8
    slowest = [tokens[request] for request in range(1, 8)]
    assert max(slowest) - min(slowest) <= 1
    assert min(slowest) >= 5


def test_what_stages_may_not_have_computed_is_no_prefix_for_others() -> None:
    leader = make_leader(prompt_rows=200)
    prompt = [i % 10 for i in range(130)]
    leader.submit(submit(0, prompt, 1))
    sent(leader)
    cancel(leader, 0)
    leader.submit(submit(1, prompt, 1))
    _, begin, _ = sent(leader)
    assert isinstance(begin, Begin)
    assert len(begin.prefix_blocks) == 0


def test_a_root_that_is_not_back_is_no_prefix_for_others() -> None:
    """Its row would fill the block, and may be dropped before it is computed."""
    leader = make_leader(prompt_rows=200)
    prompt = [i % 10 for i in range(BLOCK - 1)]
    leader.submit(submit(0, prompt, 10))
    (root,) = segments(leader)
    chain(leader, [6])
    segments(leader)
    (committed,) = answer(leader, root, {BLOCK - 2: 6})
    assert committed.survived
    cancel(leader, 0)
    leader.submit(submit(1, [*prompt, 6, 1], 10))
    begin = next(record for record in sent(leader) if isinstance(record, Begin))
    assert len(begin.prefix_blocks) == 0


def test_nodes_wait_whose_place_among_the_committed_has_no_block() -> None:
    plan, limits = SegmentPlan(16, 8, 200), LeaderLimits(max_running=2, tree_blocks=1)
    leader = Leader(BlockPool(4, 4 * BLOCK), plan, limits)
    leader.submit(submit(0, [i % 10 for i in range(BLOCK - 2)], 10))
    leader.submit(submit(1, PROMPT, 10))
    sent(leader)
    chain(leader, [6, 7, 8, 9])
    (nodes,) = segments(leader)
    assert nodes.positions.tolist() == [BLOCK - 2, BLOCK - 1]


def test_after_a_restart_requests_begin_again_and_old_results_are_ignored() -> None:
    leader = make_leader()
    leader.submit(submit(0, PROMPT, 10))
    (root,) = segments(leader)
    answer(leader, root, {2: 9})
    (lost,) = segments(leader)
    leader.restart(BlockPool(8, 4 * BLOCK))
    assert answer(leader, lost, {int(lost.rows[0]): 5}) == []
    begin, segment = sent(leader)
    assert isinstance(begin, Begin)
    assert (begin.sequence, begin.prompt) == (1, 3)
    assert begin.tokens.tolist() == [*PROMPT, 9]
    assert isinstance(segment, Segment)
    assert segment.rows.min() > lost.rows.max()
    assert segment.positions.tolist() == [0, 1, 2, 3]


def lose(leader: Leader) -> list[int]:
    """Lose the stages; return the requests that are given up."""
    given_up = leader.restart(BlockPool(8, 4 * BLOCK))
    return [sequence.submit.request for sequence in given_up]


def begun(records: list[Record]) -> list[list[int]]:
    """Return the tokens of the sequences that begin."""
    return [record.tokens.tolist() for record in records if isinstance(record, Begin)]


def test_who_may_be_why_groups_are_lost_runs_alone_and_is_given_up_at_the_third_loss() -> None:
    leader = make_leader()
    for request in (0, 1):
        leader.submit(submit(request, [request, 4, 5], 10))
    for _ in range(2):
        assert begun(sent(leader)) == [[0, 4, 5], [1, 4, 5]]
        assert lose(leader) == []
    leader.submit(submit(2, [2, 4, 5], 10))
    assert begun(sent(leader)) == [[0, 4, 5]]
    assert lose(leader) == [0]
    assert [one.submit.request for one in (*leader.running, *leader.waiting)] == [1, 2]
    assert begun(sent(leader)) == [[1, 4, 5]]
    assert lose(leader) == [1]
    assert begun(sent(leader)) == [[2, 4, 5]]


def test_a_suspect_is_one_no_more_with_its_next_token_and_makes_way_for_other_suspects() -> None:
    leader = make_leader()
    for request in (0, 1):
        leader.submit(submit(request, [request, 4, 5], 10))
    for _ in range(2):
        sent(leader)
        lose(leader)
    _, first = sent(leader)
    assert isinstance(first, Segment)
    answer(leader, first, {int(first.rows[-1]): 9})
    end, begin, _ = sent(leader)
    assert isinstance(end, End)
    assert isinstance(begin, Begin)
    assert begin.tokens.tolist() == [1, 4, 5]


def test_a_suspect_begins_once_all_rows_of_others_are_back() -> None:
    leader = make_leader()
    for request in (0, 1):
        leader.submit(submit(request, [request, 4, 5], 10))
    for _ in range(2):
        sent(leader)
        lose(leader)
    _, first = sent(leader)
    assert isinstance(first, Segment)
    chain(leader, [9, 8])
    (nodes,) = segments(leader)
    answer(leader, first, {int(first.rows[-1]): 9})
    records = sent(leader)
    assert begun(records) == []
    assert any(isinstance(record, End) for record in records)
    answer(leader, nodes, {})
    begin, second = sent(leader)
    assert isinstance(begin, Begin)
    assert begin.tokens.tolist() == [1, 4, 5]
    assert isinstance(second, Segment)
    answer(leader, second, {int(second.rows[-1]): 7})
    assert begun(sent(leader)) == [[0, 4, 5, 9]], "no suspect is left: both run again"
    assert len(leader.running) == 2
    assert lose(leader) == []


@pytest.mark.parametrize(
    ("blocks", "longest", "most"), [(4, 8 * BLOCK, 3 * BLOCK), (8, 2 * BLOCK, 2 * BLOCK)]
)
def test_a_request_that_never_fits_is_refused_and_the_longest_that_does_runs(
    blocks: int, longest: int, most: int
) -> None:
    plan, limits = SegmentPlan(4, 8, 16), LeaderLimits(max_running=1, tree_blocks=1)
    leader = Leader(BlockPool(blocks, longest), plan, limits)
    fits = most - len(PROMPT) + 1
    with pytest.raises(TooLong, match=f"KV of {most + 1} tokens; the stages have room for {most}$"):
        leader.submit(submit(0, PROMPT, fits + 1))
    assert sent(leader) == []
    leader.submit(submit(1, PROMPT, fits))
    (segment,) = segments(leader)
    for count in range(1, fits + 1):
        (committed,) = answer(leader, segment, {int(segment.rows[-1]): 9})
        assert (committed.finish is Finish.LENGTH) == (count == fits)
        if count < fits:
            (segment,) = segments(leader)


def test_the_draft_of_a_request_that_has_ended_is_detached_without_effect() -> None:
    leader = make_leader()
    sequence = leader.submit(submit(0, PROMPT, 10))
    cancel(leader, 0)
    sequence.drop_session()
    assert sent(leader) == []
