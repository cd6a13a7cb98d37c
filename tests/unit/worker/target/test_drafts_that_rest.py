"""A target at work whose policy changes: drafting that rests, and its return."""

import dataclasses

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from outrider.contract.settings import PolicySettings
from outrider.worker.link.wire import Commit, Limits
from outrider.worker.messages import SetPolicy
from outrider.worker.sampling.params import SamplingParams
from outrider.worker.speculation.switch import Drafting
from tests.unit.worker.colocated_pair import ColocatedPair
from tests.unit.worker.pair import Pair

PROMPT = [1, 2, 3]
ON = PolicySettings(off_below_percent=0)
POLICIES = {
    "drafting": ON,
    "short": dataclasses.replace(ON, max_rows=2),
    "disabled": dataclasses.replace(ON, speculate=False),
}


def use(pair: Pair, name: str) -> None:
    policy = dataclasses.replace(
        POLICIES[name], version=pair.target.row_selector.policy.version + 1
    )
    pair.target.receive(SetPolicy(policy), pair.now)


@pytest.mark.parametrize("kind", [Pair, ColocatedPair])
@given(
    changes=st.lists(
        st.tuples(st.sampled_from(sorted(POLICIES)), st.integers(1, 12)), min_size=1, max_size=12
    ),
    sampling=st.sampled_from([SamplingParams(), SamplingParams(temperature=0.8, seed=3)]),
)
@settings(max_examples=15, deadline=None)
def test_a_change_of_policy_under_load_loses_no_token(
    kind: type[Pair], changes: list[tuple[str, int]], sampling: SamplingParams
) -> None:
    pair = kind(running=3, sampling=sampling)
    for request in (1, 2, 3):
        pair.submit([request, 5, 9], 60, request)
    for name, turns in changes:
        use(pair, name)
        for _ in range(turns):
            pair.turn()
    use(pair, "drafting")
    for request in (1, 2, 3):
        pair.run(request)
        assert pair.text(request) == pair.expected([request, 5, 9], 60)


@pytest.mark.parametrize("kind", [Pair, ColocatedPair])
def test_a_draft_that_rests_runs_nothing_and_is_sent_nothing(kind: type[Pair]) -> None:
    pair = kind(running=1, sampling=SamplingParams())
    pair.submit(PROMPT, 200)
    for _ in range(20):
        pair.turn()
    use(pair, "disabled")
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
    use(pair, "drafting")
    pair.turn()
    commit, limits = sent[:2]
    assert isinstance(commit, Commit)
    assert isinstance(limits, Limits)
    assert len(commit.tokens) >= 40, "what was committed meanwhile comes as one"
    assert limits.nodes_ahead > 0
    pair.run()
    assert counters.passes > passes
    assert pair.text() == pair.expected(PROMPT, 200)


@pytest.mark.parametrize("kind", [Pair, ColocatedPair])
def test_a_draft_that_returns_is_as_right_as_one_that_never_rested(kind: type[Pair]) -> None:
    """By the tokens of a pass, and the share of right rows, once it is level."""

    def tail(rested: int) -> tuple[int, int, int]:
        """Count passes, node rows and accepted ones of the tokens after 280."""
        pair = kind(running=1, sampling=SamplingParams(temperature=0.7, seed=1))
        pair.target.receive(
            SetPolicy(PolicySettings(version=2, off_below_percent=0, max_rows=3)), pair.now
        )
        first = pair.target.row_selector.policy
        pair.submit(PROMPT, 460)
        while pair.target.admission.running == [] or pair.target.admission.running[0].length < 60:
            pair.turn()
        (sequence,) = pair.target.admission.running
        pair.target.receive(
            SetPolicy(dataclasses.replace(first, version=3, speculate=rested == 0)), pair.now
        )
        while sequence.length < 60 + rested:
            pair.turn()
        pair.target.receive(SetPolicy(dataclasses.replace(first, version=4)), pair.now)
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


def test_drafts_without_sessions_are_behind_until_they_have_grown() -> None:
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
    use(pair, "drafting")
    behind = []
    while selector.behind or not behind:
        pair.turn()
        behind.append(selector.behind)
    assert set(behind[:-1]) == {2}
    assert len(behind) >= 2 * pair.lag


def test_a_return_costs_what_drafts_take_to_catch_up_with_what_they_were_not_sent() -> None:
    pair = ColocatedPair(running=2, sampling=SamplingParams())
    selector = pair.target.row_selector
    selector.account.return_costs = lambda tokens: 0.001 * tokens
    pair.submit([1, 5], 200, 1)
    pair.submit([2, 5], 200, 2)
    for _ in range(20):
        pair.turn()
    selector.account.present.budget.add(0.0, -1000.0)
    selector.switch.state = Drafting.OFF
    selector.decide_drafting()
    for _ in range(30):
        pair.turn()
    running = pair.target.admission.running
    lags = [one.lag for one in running]
    assert min(lags) > 20
    selector.follow(running, pair.now)
    assert selector.switch.return_seconds == pytest.approx(0.001 * sum(lags))
    missed = [one.length - one.prompt_length for one in running]
    assert selector.switch.missed_seconds == pytest.approx(0.001 * sum(map(min, lags, missed)))
    running[0].session = None  # as if it had come during the rest
    selector.follow(running, pair.now)
    assert selector.switch.return_seconds == pytest.approx(0.001 * (running[0].length + lags[1]))
    assert selector.switch.missed_seconds == pytest.approx(0.001 * (missed[0] + lags[1]))
