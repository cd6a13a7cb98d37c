"""Planners in a target at work: changed under load, drafting that rests, and its return."""

import dataclasses

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from outrider.contract.planning import CHOICES, Choice, PlannerKind, TableEntry
from outrider.contract.settings import PolicySettings
from outrider.worker.link.wire import Commit, Limits
from outrider.worker.messages import SetPolicy
from outrider.worker.sampling.params import SamplingParams
from tests.unit.worker.one_process import OneProcess
from tests.unit.worker.pair import Pair

PROMPT = [1, 2, 3]
ON = PolicySettings(off_below_percent=0)
TABLE = (
    TableEntry(first=1, last=1, draft_tokens=4),
    TableEntry(first=2, last=2, draft_tokens=0),
    TableEntry(first=3, draft_tokens=2),
)
POLICIES = {
    "goodput": ON,
    "bandit": dataclasses.replace(ON, planner=PlannerKind.BANDIT),
    "static": dataclasses.replace(ON, planner=PlannerKind.STATIC, static_table=TABLE),
    "off": dataclasses.replace(ON, planner=PlannerKind.OFF),
    "disabled": dataclasses.replace(ON, speculate=False),
}


def use(pair: Pair, name: str) -> None:
    policy = dataclasses.replace(
        POLICIES[name], version=pair.target.row_selector.policy.version + 1
    )
    pair.target.receive(SetPolicy(policy), pair.now)


def choices(pair: Pair) -> set[Choice]:
    counts = pair.target.report().counters.planner_steps
    return {choice for choice, count in zip(CHOICES, counts, strict=True) if count}


@pytest.mark.parametrize("kind", [Pair, OneProcess])
@given(
    changes=st.lists(
        st.tuples(st.sampled_from(sorted(POLICIES)), st.integers(1, 12)), min_size=1, max_size=12
    ),
    sampling=st.sampled_from([SamplingParams(), SamplingParams(temperature=0.8, seed=3)]),
)
@settings(max_examples=15, deadline=None)
def test_a_change_of_planner_under_load_loses_no_token(
    kind: type[Pair], changes: list[tuple[str, int]], sampling: SamplingParams
) -> None:
    pair = kind(running=3, sampling=sampling)
    for request in (1, 2, 3):
        pair.submit([request, 5, 9], 60, request)
    for name, turns in changes:
        use(pair, name)
        for _ in range(turns):
            pair.turn()
    use(pair, "goodput")
    for request in (1, 2, 3):
        pair.run(request)
        assert pair.text(request) == pair.expected([request, 5, 9], 60)


def test_a_bandit_learns_nothing_while_its_drafts_memory_is_away(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pair, learned = OneProcess(), list[int]()
    use(pair, "bandit")
    selector = pair.target.row_selector
    monkeypatch.setattr(selector.planner, "learn", lambda tokens, spent: learned.append(tokens))
    pair.submit(PROMPT, 100)
    for away in (False, True, False):
        selector.set_away(away, pair.now)
        pair.turn()
        learned.clear()
        for _ in range(20):
            pair.turn()
        assert bool(learned) is not away


@pytest.mark.parametrize("kind", [Pair, OneProcess])
def test_the_static_planner_runs_its_table(kind: type[Pair]) -> None:
    pair = kind(running=3, sampling=SamplingParams(), noise=0.0)
    use(pair, "static")
    pair.submit(PROMPT, 60)
    end = pair.run()
    assert end.usage.draft_rows <= 4 * end.usage.passes
    assert end.usage.draft_rows >= 3 * end.usage.passes
    assert Choice.TABLE in choices(pair)
    assert end.planned.startswith("static/")


def test_the_static_planner_turns_drafting_off_where_its_table_says_none() -> None:
    pair = Pair(running=2, sampling=SamplingParams())
    use(pair, "static")
    pair.submit([1, 5], 60, 1)
    pair.submit([2, 5], 200, 2)
    for _ in range(3):
        pair.turn()
    passes = pair.draft.sessions.counters.passes
    while pair.finished(1) is None:
        pair.turn()
        assert pair.target.report().drafting == "off"
    assert pair.draft.sessions.counters.passes == passes
    end = pair.run(2)
    assert end.usage.accepted_rows > 0, "one alone is drafted for again"
    assert {Choice.TABLE, Choice.TABLE_NONE} <= choices(pair)


@pytest.mark.parametrize("kind", [Pair, OneProcess])
def test_the_bandit_tries_plain_decoding_and_drafts(kind: type[Pair]) -> None:
    pair = kind(running=1, sampling=SamplingParams())
    use(pair, "bandit")
    pair.submit(PROMPT, 400)
    end = pair.run()
    assert end.usage.accepted_rows > 0
    assert {Choice.EXPLORES, Choice.EXPLOITS} <= choices(pair)
    assert choices(pair) & {Choice.EXPLORES_NONE, Choice.EXPLOITS_NONE}


def test_a_draft_that_answers_no_more_is_not_waited_for_again_and_again() -> None:
    pair = OneProcess(running=1, sampling=SamplingParams())
    use(pair, "static")
    pair.submit(PROMPT, 100)
    for _ in range(20):
        pair.turn()
    waits = pair.target.row_selector.wait_policy
    before = waits.seconds
    for _ in range(100):
        if pair.target.next(pair.now) is None:
            pair.now += pair.target.max_wait(pair.now) or 0.0
    assert waits.seconds - before < 4 * 0.1
    assert pair.target.next(pair.now) is not None


@pytest.mark.parametrize("name", ["off", "disabled"])
@pytest.mark.parametrize("kind", [Pair, OneProcess])
def test_a_draft_that_rests_runs_nothing_and_is_sent_nothing(kind: type[Pair], name: str) -> None:
    pair = kind(running=1, sampling=SamplingParams())
    pair.submit(PROMPT, 200)
    for _ in range(20):
        pair.turn()
    use(pair, name)
    pair.turn()
    pair.turn()
    sent: list[object] = []
    send, counters = pair.target.sessions.send, pair.draft.sessions.counters
    pair.target.sessions.send = lambda link, message: (sent.append(message), send(link, message))[1]
    passes, length = counters.passes, pair.target.admission.running[0].length
    for _ in range(40):
        pair.turn()
    assert counters.passes == passes
    assert sent == []
    assert pair.target.admission.running[0].length == length + 40
    use(pair, "goodput")
    pair.turn()
    commit, limits = sent[:2]
    assert isinstance(commit, Commit)
    assert isinstance(limits, Limits)
    assert len(commit.tokens) >= 40, "what was committed meanwhile comes as one"
    assert limits.nodes_ahead > 0
    pair.run()
    assert counters.passes > passes
    assert pair.text() == pair.expected(PROMPT, 200)


@pytest.mark.parametrize("kind", [Pair, OneProcess])
def test_a_draft_that_returns_is_as_right_as_one_that_never_rested(kind: type[Pair]) -> None:
    """By the tokens of a pass, and the share of right rows, once it is level."""

    def tail(rested: int) -> tuple[int, int, int]:
        """Count passes, node rows and accepted ones of the tokens after 280."""
        pair = kind(running=1, sampling=SamplingParams(temperature=0.7, seed=1))
        pair.target.receive(
            SetPolicy(
                PolicySettings(
                    version=2, planner=PlannerKind.STATIC, off_below_percent=0,
                    static_table=(TableEntry(first=1, draft_tokens=3),),
                )
            ),
            pair.now,
        )  # fmt: skip
        static = pair.target.row_selector.policy
        pair.submit(PROMPT, 460)
        while pair.target.admission.running == [] or pair.target.admission.running[0].length < 60:
            pair.turn()
        (sequence,) = pair.target.admission.running
        pair.target.receive(
            SetPolicy(dataclasses.replace(static, version=3, speculate=rested == 0)), pair.now
        )
        while sequence.length < 60 + rested:
            pair.turn()
        pair.target.receive(SetPolicy(dataclasses.replace(static, version=4)), pair.now)
        while sequence.length < 280:
            pair.turn()
        usage = dataclasses.replace(sequence.usage)
        end = pair.run()
        assert pair.text() == pair.expected(PROMPT, 460)
        return (
            end.usage.passes - usage.passes,
            end.usage.draft_rows - usage.draft_rows,
            end.usage.accepted_rows - usage.accepted_rows,
        )

    never, after = tail(0), tail(150)
    passes, rows, accepted = after
    assert never[2] > 50
    assert accepted / passes == pytest.approx(never[2] / never[0], rel=0.1)
    assert accepted / rows == pytest.approx(never[2] / never[1], rel=0.1)


def test_a_return_without_sessions_costs_all_steps_until_drafts_are_level() -> None:
    """Requests that began during a rest have none; one that never speculates counts for nothing."""
    pair = Pair(running=3, lag=4, sampling=SamplingParams())
    selector = pair.target.row_selector
    use(pair, "disabled")
    pair.submit([1, 5], 200, 1)
    pair.submit([2, 5], 200, 2)
    pair.submit([3] * 100, 200, 3, speculate=False)
    for _ in range(30):
        pair.turn()
    drafted = [one for one in pair.target.admission.running if one.submit.speculate]
    assert [one.session for one in drafted] == [None, None]
    lag, steps = max(one.length for one in drafted), 0
    use(pair, "goodput")
    before = pair.now
    pair.turn()
    assert selector._return is not None
    assert (selector._return.lag, selector._return.sequences) == (lag - 1, 2)
    while selector._return is not None:
        assert selector.behind == 2
        pair.turn()
        steps += 1
    assert steps >= 2 * pair.lag - 1
    assert 0 < selector.switch_costs.seconds(lag - 1, 2) <= pair.now - before


def test_a_planner_is_asked_in_each_step_although_drafting_rests() -> None:
    selector = Pair().target.row_selector
    pair = Pair()
    pair.submit(PROMPT, 5)
    pair.turn()
    submit = pair.target.admission.running[0].submit
    for name, asked in (("bandit", True), ("static", True), ("off", False), ("disabled", False)):
        selector.set_policy(POLICIES[name], 0.0)
        if name in ("bandit", "static"):
            selector.planner.awaited = 0  # type: ignore[misc]
        selector.decide_drafting()
        assert not selector.wants_drafts(submit)
        assert selector.may_want_drafts(submit) == asked
