"""Peers that break the rules of the link: they waste rows, and nothing else."""

import dataclasses
import itertools
import math
import re
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import pytest

from outrider.client import Link, LinkState
from outrider.protos.v1.internal import drafter_pb2 as pb
from outrider.worker.link import draft_records
from outrider.worker.link.payloads import TARGETS
from outrider.worker.link.records import VERSION
from outrider.worker.link.wire import Close, CloseReason, Commit, FromTarget, Limits, Open
from outrider.worker.sampling.params import SamplingParams
from tests.process import workers
from tests.process.conftest import MortalDraft
from tests.process.hostile import (
    SECONDS,
    HostileDraft,
    HostileTarget,
    Misdeed,
    good_hello,
    grow,
    hello_like,
    record_for_target,
)
from tests.process.workers import Worker, answer, assert_speculated, let_grow, pair_with

COUNT = 250
TWENTY_MEGABYTES = 20 << 20
LARGE = 16_000
"""Nodes of a message that is hardly within its limit. So few of them are too many a second that the
slowest reader reads them in time; of small ones it may read no more than are allowed."""
INVALID = CloseReason.INVALID


def once(payload: Callable[[Open], bytes]) -> Misdeed:
    return lambda opening: [payload(opening)]


def back(opening: Open) -> Iterable[bytes]:
    """Ids that were used already."""
    return [grow(opening, [0, 1, 2], first_id=10), grow(opening, [0], first_id=9)]


VIOLATIONS: dict[str, tuple[Misdeed, str]] = {
    "a parent below 0": (once(lambda o: grow(o, [-1])), "parent -1 of node 1"),
    "a token below 0": (once(lambda o: grow(o, [0], [-1])), "token -1 of node 1"),
    "ids going back": (back, "id 9 does not follow id 12"),
    "an id below 0": (once(lambda o: grow(o, [0], first_id=-1)), "id -1 does not follow"),
    "more nodes than granted": (
        once(lambda o: grow(o, [0] * 15_000)),
        "15000 nodes in one message; 96 were granted",
    ),
    "a NaN": (once(lambda o: grow(o, [0], logprobs=[math.nan])), "log-probability nan"),
    "a root beyond the target's": (
        once(lambda o: grow(o, [0], root_position=2000)),
        "root position 2000 is not from",
    ),
}
BROKEN: dict[str, tuple[Misdeed, str]] = {
    "no body": (once(lambda o: pb.DraftMessage().SerializeToString()), "unexpected message"),
    "a second Hello": (
        once(lambda o: pb.DraftMessage(hello=pb.Hello()).SerializeToString()),
        "unexpected message: hello",
    ),
    "more tokens than parents": (once(lambda o: grow(o, [0], [1, 2])), "kind 5 with a body of 44"),
    "an unknown kind": (once(lambda o: record_for_target(99, b"")), "kind 99"),
    "garbage": (once(lambda o: b"\xff\xfe garbage"), "no message"),
    "a message that is too large": (
        once(lambda o: grow(o, [0] * 50_000)),
        r"a message of \d+ bytes; 262144 are allowed",
    ),
    "a million nodes": (once(lambda o: grow(o, [0] * 1_000_000)), "RESOURCE_EXHAUSTED"),
    "twenty megabytes": (once(lambda o: b"\x12" * TWENTY_MEGABYTES), "RESOURCE_EXHAUSTED"),
    "growth without end": (
        lambda o: itertools.repeat(grow(o, [0] * LARGE, session=99)),
        "more than 5000 messages or kibibytes a second",
    ),
}
WASTE: dict[str, Misdeed] = {
    "unknown parents": once(lambda o: grow(o, [40, 41, 42], first_id=50)),
    "unknown sessions": lambda o: [grow(o, [0], session=s) for s in (0, 77, 2**64 - 1)],
    "nonsense": once(lambda o: grow(o, [0] * 90, list(range(90)), [-0.01] * 90)),
    "a deep path": once(lambda o: grow(o, list(range(90)))),
    "one token many times": once(lambda o: grow(o, [0] * 90)),
    "an unknown reason to close": once(
        lambda o: record_for_target(4, draft_records._CLOSE.pack(o.session, 77, 0))
    ),
    "silence": lambda o: [],
}


@pytest.mark.parametrize("name", VIOLATIONS)
def test_a_violation_closes_the_session_and_another_draft_is_used(
    target: Worker, draft: MortalDraft, plain: tuple[int, ...], name: str
) -> None:
    misdeed, says = VIOLATIONS[name]
    with HostileDraft(misdeed) as hostile:
        given = answer_beside(target, hostile, draft)
        close = hostile.closes.get(timeout=SECONDS)
        assert close.reason == INVALID
        assert re.search(says, close.detail)
        assert_still_up(target, hostile)
    assert given.tokens == plain[:COUNT]
    assert_speculated(given)


@pytest.mark.parametrize("name", BROKEN)
def test_what_cannot_be_read_ends_the_link_and_another_draft_is_used(
    target: Worker, draft: MortalDraft, plain: tuple[int, ...], name: str
) -> None:
    misdeed, says = BROKEN[name]
    with HostileDraft(misdeed) as hostile:
        link = ended_link(target, hostile, draft, plain)
        while link.state is not LinkState.REFUSED:
            # The target's own write met the end of the stream first: gRPC reports that as an
            # internal error, the reason is lost, and the link is tried again at once: it may be up.
            assert link.state is LinkState.UP or "INTERNAL" in link.detail, link.detail
            link = ended_link(target, hostile, draft, plain)
        assert re.search(says, link.detail), link.detail
        given = answer(target, COUNT, {COUNT // 2: lambda: let_grow(target, draft.worker)})
    assert given.tokens == plain[:COUNT]
    assert_speculated(given)


@pytest.mark.parametrize("name", WASTE)
def test_useless_growth_wastes_rows_only(target: Worker, plain: tuple[int, ...], name: str) -> None:
    with HostileDraft(WASTE[name]) as hostile:
        pair_with(target, hostile.address)
        given = answer(target, 60)
        assert hostile.opened > 0
        assert_still_up(target, hostile)
    assert given.tokens == plain[:60]


@pytest.mark.parametrize(
    ("hello", "state", "says"),
    [
        (lambda t: b"\xff garbage", LinkState.REFUSED, "no message"),
        (lambda t: pb.DraftMessage().SerializeToString(), LinkState.REFUSED, "must be Hello"),
        (
            lambda t: good_hello(t, protocol_min=VERSION + 1, protocol_max=VERSION + 6),
            LinkState.REFUSED,
            f"{VERSION + 1} to {VERSION + 6}",
        ),
        (lambda t: good_hello(t, vocabulary_block=3), LinkState.REFUSED, "blocks of 3"),
        (
            lambda t: good_hello(t, vocabulary_hashes=[1, 2, 3]),
            LinkState.REFUSED,
            r"agree on 0\.0% of the",
        ),
        (
            lambda t: good_hello(t, vocabulary_outputs=[1] * 99),
            LinkState.REFUSED,
            "99 output counts",
        ),
        (lambda t: good_hello(t, vocabulary_hashes=[]), LinkState.REFUSED, "cannot translate"),
    ],
)
def test_a_draft_that_does_not_fit_is_refused(
    target: Worker,
    plain: tuple[int, ...],
    hello: Callable[[pb.Hello], bytes],
    state: LinkState,
    says: str,
) -> None:
    with HostileDraft(lambda opening: [], hello) as hostile:
        pair_with(target, hostile.address, up=False)
        (link,) = target.until(lambda s: s.links[0].state is state).links
        assert re.search(says, link.detail), link.detail
        assert answer(target, 20).tokens == plain[:20]
        assert hostile.opened == 0


def opening(session: int = 1, tokens: Iterable[int] = (1, 2, 3), **limits: Any) -> Open:
    """A good Open, but for what is given."""
    ids = np.array(list(tokens), np.int32)
    fields = {"session": session, "depth": 8, "width": 4, "nodes_ahead": 32, "error_scale": 1.0}
    return Open(session, ids, SamplingParams(), Limits(**(fields | limits)), len(ids))


def commit(session: int, position: int, tokens: Iterable[int]) -> Commit:
    return Commit(session, position, np.array(list(tokens), np.int32))


def sampled(**fields: Any) -> Open:
    return dataclasses.replace(opening(), sampling=SamplingParams(**fields))


NO_LIMITS = Limits(1, 0, 0, 0, math.nan)
BAD_SESSIONS: dict[str, tuple[list[FromTarget], str]] = {
    "open twice": ([opening(), opening()], "open already"),
    "a token outside": ([opening(tokens=[1, 260])], "ids below 260"),
    "a token below 0": ([opening(tokens=[-1])], "ids below 260"),
    "no tokens": ([opening(tokens=[])], "1 or more ids"),
    "too long": ([opening(tokens=[1] * 3000)], "2048 tokens fit"),
    "a NaN scale": ([opening(error_scale=math.nan)], "error scale nan"),
    "a zero scale": ([opening(error_scale=0.0)], "error scale 0.0"),
    "a NaN temperature": ([sampled(temperature=math.nan)], "temperature: nan"),
    "top_p of 2": ([sampled(top_p=2.0)], "top_p: 2.0"),
    "a commit elsewhere": ([opening(), commit(1, 700, [1])], "root is at 2"),
    "a commit of nothing": ([opening(), commit(1, 2, [])], "commit of 0 tokens"),
    "a commit of no token": ([opening(), commit(1, 2, [999])], "outside the vocabulary"),
    "a commit past the context": ([opening(), commit(1, 2, [1] * 3000)], "2048 tokens fit"),
    "limits of NaN": ([opening(), NO_LIMITS], "error scale nan"),
}


@pytest.mark.parametrize("name", BAD_SESSIONS)
def test_a_draft_closes_a_session_that_breaks_the_rules(draft: MortalDraft, name: str) -> None:
    messages, says = BAD_SESSIONS[name]
    with HostileTarget(draft.address) as hostile:
        for message in messages:
            hostile.send(message)
        assert re.search(says, hostile.close_reason(1).detail)
        assert_unharmed(draft)


@pytest.mark.parametrize("payload", [b"\xff garbage", b"", b"\x12\x00" * 50_000])
def test_garbage_closes_the_stream_of_a_target(draft: MortalDraft, payload: bytes) -> None:
    with HostileTarget(draft.address) as hostile:
        hostile.send(opening())
        hostile.send(payload)
        assert re.search("no message|unexpected message|session 0 stands for", hostile.refusal())
        assert_unharmed(draft)


def test_a_target_may_close_its_stream(draft: MortalDraft) -> None:
    with HostileTarget(draft.address) as hostile:
        hostile.send(opening())
        hostile.send(Close(0, CloseReason.FINISHED))
        assert hostile.refusal() == "it ended well"
        assert_unharmed(draft)


FLOODS: dict[str, tuple[FromTarget, int, str]] = {
    "one large message": (commit(9, 3, [1] * 66_000), 1, r"\d+ bytes; 262144 are allowed"),
    "one that no buffer takes": (commit(9, 3, [1] * 2_000_000), 1, "RESOURCE_EXHAUSTED"),
    "many messages": (commit(9, 3, [1] * 25_000), 4000, r"more than \d+ messages or kibibytes"),
}


@pytest.mark.parametrize("name", FLOODS)
def test_a_flood_ends_the_stream_of_its_target_and_of_no_other(
    target: Worker, draft: MortalDraft, plain: tuple[int, ...], name: str
) -> None:
    message, count, says = FLOODS[name]
    refusals: list[str] = []

    def flood() -> None:
        with HostileTarget(draft.address) as hostile:
            hostile.send(opening())
            for payload in itertools.repeat(TARGETS.written([message]), count):
                hostile.send(payload)
            refusals.append(hostile.refusal())

    pair_with(target, draft.address)
    grown = {COUNT // 4: lambda: let_grow(target, draft.worker)}
    given = answer(target, COUNT, {COUNT // 2: flood, **grown})
    assert re.search(says, refusals[0])
    assert given.tokens == plain[:COUNT]
    assert_speculated(given)
    assert_unharmed(draft)


def test_a_target_that_says_no_hello_is_refused_while_another_is_served(
    target: Worker, draft: MortalDraft, plain: tuple[int, ...]
) -> None:
    with HostileTarget(draft.address, lambda hello: None) as hostile:
        pair_with(target, draft.address)
        given = answer(target, COUNT, {COUNT // 2: lambda: let_grow(target, draft.worker)})
        assert re.search("DEADLINE_EXCEEDED(.|\n)*no Hello came", hostile.refusal())
    assert given.tokens == plain[:COUNT]
    assert_speculated(given)
    assert_unharmed(draft)


def test_messages_of_unknown_sessions_are_ignored(draft: MortalDraft) -> None:
    with HostileTarget(draft.address) as hostile:
        hostile.send(commit(9, 3, [1]))
        hostile.send(Limits(9, 0, 0, 0, 1.0))
        hostile.send(Close(9, CloseReason.FINISHED))
        hostile.send(opening(session=3, tokens=[]))
        assert hostile.close_reason(3).reason == INVALID
        assert_unharmed(draft)


def test_a_thousand_sessions_are_too_many(draft: MortalDraft) -> None:
    with HostileTarget(draft.address) as hostile:
        for session in range(1, 1001):
            hostile.send(opening(session))
        last = hostile.close_reason(1000)
        assert last.reason == CloseReason.OVERLOADED
        hostile.send(Close(1, CloseReason.FINISHED))
        room = hostile.capacity()
        assert room.sessions == 1
        assert room.tokens >= 2048
    assert_unharmed(draft)


def test_absurd_limits_are_cut_and_serve_another_target(
    target: Worker, draft: MortalDraft, plain: tuple[int, ...]
) -> None:
    huge = 2**32 - 1
    with HostileTarget(draft.address) as hostile:
        hostile.send(opening(1, depth=huge, width=huge, nodes_ahead=huge, link_lag_micros=huge))
        hostile.send(opening(2, [1] * 2047, depth=huge, width=huge, nodes_ahead=huge))
        draft.worker.until(lambda s: s.running == 2 and s.counters.draft_rows > 0)
        pair_with(target, draft.address)
        given = answer(target, COUNT, {COUNT // 2: lambda: let_grow(target, draft.worker)})
        assert_speculated(given)
        assert given.tokens == plain[:COUNT]
    assert_unharmed(draft)


@pytest.mark.parametrize(
    ("hello", "says"),
    [
        (lambda d: b"\xff garbage", "no message"),
        (lambda d: pb.TargetMessage().SerializeToString(), "must be Hello"),
        (lambda d: first(d, protocol_min=77, protocol_max=78), "versions 77 to 78"),
        (lambda d: first(d, vocabulary_hashes=[3]), "agree on 0.0%"),
    ],
)
def test_a_target_that_does_not_fit_is_refused(
    draft: MortalDraft, hello: Callable[[pb.Hello], bytes], says: str
) -> None:
    with HostileTarget(draft.address, hello) as hostile:
        assert re.search(says, hostile.refusal())
    assert_unharmed(draft)


def first(draft: pb.Hello, **changes: Any) -> bytes:
    return pb.TargetMessage(hello=hello_like(draft, **changes)).SerializeToString()


def answer_beside(target: Worker, hostile: HostileDraft, draft: MortalDraft) -> workers.Answer:
    """An answer whose first session is the hostile draft's, as the link that was up first; in its
    middle, the other one is given the time to help."""
    pair_beside(target, hostile, draft)
    given = answer(target, COUNT, {COUNT // 2: lambda: let_grow(target, draft.worker)})
    assert hostile.opened > 0
    return given


def pair_beside(target: Worker, hostile: HostileDraft, draft: MortalDraft) -> None:
    """Links the target to both, to the hostile one first."""
    pair_with(target, hostile.address)
    pair_with(target, hostile.address, draft.address)


def ended_link(
    target: Worker, hostile: HostileDraft, draft: MortalDraft, plain: tuple[int, ...]
) -> Link:
    """The link of the hostile draft once the stream of its session has ended, some time after it
    got one: the link may be up again by another."""
    pair_beside(target, hostile, draft)
    streams = hostile.streams
    assert answer_beside(target, hostile, draft).tokens == plain[:COUNT]
    state = target.until(
        lambda state: hostile.streams > streams or hostile.address not in workers.up_links(state)
    )
    return next(link for link in state.links if link.address == hostile.address)


def assert_still_up(target: Worker, hostile: HostileDraft) -> None:
    """What a draft said cost it a session, not its link."""
    assert hostile.address in workers.up_links(target.client.state())


def assert_unharmed(draft: MortalDraft) -> None:
    """The same life of the draft goes on, and holds no KV once the stream is gone."""
    draft.worker.until(lambda s: s.ready and s.running == 0 and s.counters.kv_slots_used == 0)
    assert draft.worker.process.poll() is None


@pytest.mark.parametrize("room", [{"sessions": 0}, {"context_length": 4}])
def test_a_draft_is_asked_for_no_more_than_its_hello_announced(
    target: Worker, plain: tuple[int, ...], room: dict[str, int]
) -> None:
    with HostileDraft(lambda opening: [], lambda t: good_hello(t, **room)) as small:
        pair_with(target, small.address)
        assert answer(target, 30).tokens == plain[:30]
        assert small.opened == 0
