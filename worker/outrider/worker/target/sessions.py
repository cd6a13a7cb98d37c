"""Sessions of a target's sequences on its drafts: which draft grows whose tree, and the growth.

Opens, limits and closes sessions, checks everything that a draft sends, and puts it into the
mirrors. Leaves bytes and reconnecting to `link/client`, and rows to `target/selection`.
"""

import logging
import math
from collections.abc import Callable, Iterable
from collections.abc import Sequence as SequenceOf
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from outrider.contract.counters import Counters
from outrider.contract.settings import PolicySettings
from outrider.worker.errors import ProtocolViolation
from outrider.worker.link.wire import (
    Capacity,
    Close,
    CloseReason,
    Commit,
    FromDraft,
    FromTarget,
    Grow,
    Limits,
    Open,
)
from outrider.worker.messages import FromPeer, LinkDown, LinkUp, Room, SetPolicy, Submit
from outrider.worker.speculation.acceptance import ErrorScale
from outrider.worker.target.answer import TargetSession
from outrider.worker.target.stats import GrowthLatencies
from outrider.worker.tree.mirror import Mirror

logger = logging.getLogger(__name__)

BACK_OFF_SECONDS = 0.5
MIN_BACK_OFF_SECONDS = 0.05
"""From a refusal for want of room to the next try, however soon the draft says that it has some."""
MAX_BACK_OFF_SECONDS = 60.0
CAUGHT_UP_TOKENS = 6
"""A draft further behind than this is in prefill: no measure of how fast it grows."""
TOGETHER_SECONDS = 0.0001
"""Growth that comes within so long of other growth comes together with it."""
LAG_MEMORY = 0.8
"""Weight of the past in the running mean of the lag."""
LAG_STEP = 1.5
"""The lag is sent again when it has moved by this factor, plus or minus `LAG_UNIT`."""
LAG_UNIT = 0.002
"""Seconds."""
SCALE_STEP = 1.1
"""The error scale is sent again when it has moved by this factor."""


class DraftedSequence(Protocol):
    """What sessions need of a sequence, whatever runs its passes."""

    session: TargetSession | None
    not_before: dict[int, float]
    """By link: earliest time to open another session on it, after its draft closed one."""
    committed_at: float
    growths: int
    grew_at: float

    @property
    def submit(self) -> Submit: ...
    @property
    def mirror(self) -> Mirror: ...
    @property
    def length(self) -> int: ...
    @property
    def position(self) -> int: ...
    @property
    def needs_prefill(self) -> bool: ...

    def committed(self) -> NDArray[np.int32]:
        """Return a copy of all committed tokens."""

    def drop_session(self) -> None:
        """Forget the session, and the ids of its nodes."""


class DraftControl(Protocol):
    """Decides what drafts may do, by what sessions see of them."""

    @property
    def policy(self) -> PolicySettings: ...
    @property
    def scale(self) -> ErrorScale: ...

    def set_policy(self, policy: PolicySettings, now: float) -> None:
        """Apply a policy."""

    def restart(self, now: float) -> None:
        """Forget the measured gain: a new draft has joined."""

    def wants_drafts(self, submit: Submit) -> bool:
        """True if drafts should grow for a request."""

    def saw_latency(self, seconds: float) -> None:
        """Learn how long after a commit the first growth that knows it comes."""

    def saw_period(self, seconds: float) -> None:
        """Learn how long after growth of a root the next comes."""

    def saw_first_growth(self, sequence: Any) -> None:
        """Learn what the first growth of a root is worth."""


Control = TypeVar("Control", bound=DraftControl)
DraftNews = FromPeer | SetPolicy | LinkUp | LinkDown
"""What the server tells an engine of its drafts, and what these send."""


@dataclass(slots=True)
class DraftPeer:
    """One draft whose link is up: its sessions, and whether it takes more."""

    allowed: NDArray[np.bool_]
    """[vocabulary] token ids that its draft may propose."""
    sequences: dict[int, DraftedSequence] = field(default_factory=dict)
    """By session number."""
    room: Room | None = None
    """As its Hello announced; None: no bound is known."""
    next_session: int = 1
    opened_last: int = 0
    """Which of all sessions of its target it got last; 0: it got none in this life."""
    draining: bool = False
    """It takes no more sessions in this life."""
    overloaded_at: float = -math.inf
    """Time of its last refusal for want of room."""
    overloaded_until: float = 0.0
    """Time up to which that refusal counts."""
    overloaded_by: int = 0
    """Tokens of the sequence that it refused."""
    distrusted_until: float = 0.0
    violations: int = 0

    def takes(self, sequence: DraftedSequence, now: float) -> bool:
        """True if a session for the sequence may be opened on it."""
        if self.draining or now < max(self.overloaded_until, self.distrusted_until):
            return False
        room = self.room
        return room is None or (
            len(self.sequences) < room.sessions and sequence.length < room.context
        )

    def distrust(self, now: float) -> None:
        """Open no session for a while; longer each time that the draft breaks the rules."""
        self.distrusted_until = now + min(
            BACK_OFF_SECONDS * 2 ** min(self.violations, 16), MAX_BACK_OFF_SECONDS
        )
        self.violations += 1

    def back_off(self, tokens: int, now: float) -> None:
        """Open no session for a while: one of so many tokens was refused for want of room."""
        self.overloaded_at, self.overloaded_until = now, now + BACK_OFF_SECONDS
        self.overloaded_by = tokens

    def saw_capacity(self, capacity: Capacity) -> None:
        """End a back-off for want of room, and no other, if the draft has room now."""
        if capacity.sessions > 0 and capacity.tokens >= max(1, self.overloaded_by):
            self.overloaded_until = self.overloaded_at + MIN_BACK_OFF_SECONDS


@dataclass(slots=True)
class TargetSessions(Generic[Control]):
    """Every session of one target."""

    send: Callable[[int, FromTarget], None]
    control: Control
    peers: dict[int, DraftPeer] = field(default_factory=dict)
    opened: int = 0
    """Sessions so far, on all drafts."""
    dropped: int = 0
    """Nodes that arrived dead."""
    lag: float = 0.0
    """From a commit to the first growth that knows it, in seconds, as the target's steps see it."""
    latencies: GrowthLatencies = field(default_factory=GrowthLatencies)
    """Every one of these times."""
    _first_grown: list[DraftedSequence] = field(default_factory=list)
    """Whose roots got their first growth from the messages that are being received."""

    def apply(self, message: DraftNews, now: float) -> None:
        """Apply one message about drafts, or of one."""
        match message:
            case FromPeer(link=link, messages=messages, arrived=arrived):
                self.receive(link, messages, min(arrived, now))
            case SetPolicy(policy=policy):
                self.control.set_policy(policy, now)
            case LinkUp(link=link, allowed=allowed, room=room):
                self.link_up(link, allowed, room)
                self.control.restart(now)
            case LinkDown(link=link):
                self.link_down(link)

    def count(self, counters: Counters) -> None:
        """Write what growth there was into the counters."""
        counters.growth_dropped = self.dropped
        counters.growth_latencies = tuple(self.latencies.counts)
        counters.growth_latency_seconds = self.latencies.seconds

    def link_up(self, link: int, allowed: NDArray[np.bool_], room: Room | None = None) -> None:
        """Use a draft, within the room that it announced."""
        self.peers[link] = DraftPeer(allowed, room=room)

    def link_down(self, link: int) -> None:
        """Drop a draft and its sessions; their sequences go on without it."""
        peer = self.peers.pop(link, None)
        if peer is not None:
            for sequence in peer.sequences.values():
                sequence.drop_session()

    def update(self, sequence: DraftedSequence, now: float) -> None:
        """Open a session for a sequence that has none, or send limits that have changed."""
        if sequence.session is None:
            self._open(sequence, now)
        else:
            self._limit(sequence, sequence.session)

    def commit(
        self, sequence: DraftedSequence, position: int, tokens: NDArray[np.int32], now: float
    ) -> None:
        """Send the draft the tokens that follow the root at `position`, a copy of them.

        A draft that rests is sent nothing: it gets all of them once it is to grow again.
        """
        session = sequence.session
        if session is not None and session.nodes_ahead > 0:
            session.told = position + len(tokens)
            self.send(session.link, Commit(session.number, position, tokens.copy()))
            if session.asked is None:
                session.asked = (session.told, now)

    def book_commit(self, sequence: DraftedSequence, count: int, now: float) -> None:
        """Note a commit of so many tokens that the draft knows already."""
        session = sequence.session
        if session is not None:
            session.told = sequence.position + count
            if session.asked is None:
                session.asked = (session.told, now)

    def book_growth(self, sequence: DraftedSequence, now: float) -> None:
        """Note growth of the present root that is in the mirror already."""
        session = sequence.session
        assert session is not None
        self._time_link(session, sequence.position, now)
        self._count_growth(sequence, now, caught_up=True)
        self._first_grown.clear()  # the wait that goes on shows what it is worth

    def finish(self, sequence: DraftedSequence) -> None:
        """Close the session of a sequence that ends."""
        session = sequence.session
        if session is not None:
            self._close(sequence, session, CloseReason.FINISHED)

    def receive(self, link: int, messages: Iterable[FromDraft], arrived: float) -> None:
        """Apply messages that came together; ignore those for a session that has ended."""
        for message in messages:
            self._apply(link, message, arrived)
        self._value_first_growths()

    def receive_growth(
        self, link: int, messages: SequenceOf[FromDraft], arrived: float
    ) -> SequenceOf[FromDraft]:
        """Add growth to the mirrors, up to the first message that ends a session; return the rest.

        Growth that breaks the rules is one that does.
        """
        peer = self.peers.get(link)
        if peer is None:
            return ()
        taken = 0
        for message in messages:
            if not isinstance(message, Grow):
                break
            try:
                self._grow(peer, message, arrived)
            except ProtocolViolation:
                break
            taken += 1
        self._value_first_growths()
        return messages[taken:]

    def _apply(self, link: int, message: FromDraft, now: float) -> None:
        """Apply one message of a draft."""
        peer = self.peers.get(link)
        if peer is None:
            return
        match message:
            case Capacity():
                peer.saw_capacity(message)
            case Grow():
                try:
                    self._grow(peer, message, now)
                except ProtocolViolation as error:
                    self._refuse(peer, message.session, error, now)
            case Close(session=0):
                self._distrust(link, ProtocolViolation(f"the draft closed: {message.detail}"), now)
            case Close():
                self._closed_by_draft(peer, message, now)

    def _value_first_growths(self) -> None:
        """Learn what the first growths of the messages just received are worth."""
        for sequence in self._first_grown:
            self.control.saw_first_growth(sequence)
        self._first_grown.clear()

    def _distrust(self, link: int, error: ProtocolViolation, now: float) -> None:
        """Close every session of a peer that broke the rules outside any of them."""
        logger.warning("link %d: %s", link, error)
        peer = self.peers.get(link)
        if peer is None:
            return
        peer.distrust(now)
        for sequence in list(peer.sequences.values()):
            if sequence.session is not None:
                self._close(sequence, sequence.session, CloseReason.INVALID, str(error))

    def _grow(self, peer: DraftPeer, message: Grow, now: float) -> None:
        """Add growth to its mirror; raises `ProtocolViolation`, and then nothing has changed."""
        sequence, growth = peer.sequences.get(message.session), message.growth
        if sequence is None or sequence.session is None:
            return
        session = sequence.session
        heard = sequence.mirror.acknowledged
        self.dropped += sequence.mirror.receive(growth, session.granted, peer.allowed)
        latency = self._time_link(session, growth.root_position, now)
        caught_up = growth.root_position - heard <= CAUGHT_UP_TOKENS
        if session.level_at is not None and growth.root_position >= session.level_at:
            session.level_at = None
        if growth.root_position == sequence.position:
            self._count_growth(sequence, now, caught_up)
        elif latency is not None and caught_up:
            self.control.saw_latency(latency)

    def _refuse(self, peer: DraftPeer, number: int, error: ProtocolViolation, now: float) -> None:
        """Close the session whose growth broke the rules."""
        sequence = peer.sequences[number]
        assert sequence.session is not None
        logger.warning("session %d of link %d: %s", number, sequence.session.link, error)
        self._close(sequence, sequence.session, CloseReason.INVALID, str(error))
        peer.distrust(now)

    def _time_link(self, session: TargetSession, root_position: int, now: float) -> float | None:
        """Learn the lag from the oldest commit that no growth had acknowledged, and return it."""
        if session.asked is None or root_position < session.asked[0]:
            return None
        latency = max(0.0, now - session.asked[1])  # it may know the commit before it was sent
        self.lag += (1 - LAG_MEMORY) * (latency - self.lag)
        self.latencies.add(latency)
        session.asked = None
        return latency

    def _count_growth(self, sequence: DraftedSequence, now: float, caught_up: bool) -> None:
        """Count growth of the present root, and learn how long it took.

        Nothing waits for growth behind a prompt that is not computed: a serial draft grows there
        only while others are waited for.
        """
        control, first = self.control, sequence.growths == 0
        timed = caught_up and not sequence.needs_prefill
        since = max(0.0, now - (sequence.committed_at if first else sequence.grew_at))
        if not first and since < TOGETHER_SECONDS:
            return
        if first and timed:
            control.saw_latency(since)
        elif timed:
            control.saw_period(since)
        sequence.growths += 1
        sequence.grew_at = now
        if first:
            self._first_grown.append(sequence)

    def _open(self, sequence: DraftedSequence, now: float) -> None:
        link = self._ready_for(sequence, now) if self._wanted(sequence) else None
        if link is None:
            return
        peer = self.peers[link]
        number, peer.next_session = peer.next_session, peer.next_session + 1
        self.opened += 1
        peer.opened_last = self.opened
        policy = self.control.policy
        session = TargetSession(
            link=link,
            number=number,
            granted=policy.nodes_ahead,
            error_scale=self.control.scale.value,
            nodes_ahead=policy.nodes_ahead,
            lag=self.lag,
            shape=(policy.depth, policy.width),
            told=sequence.position,
        )
        sequence.session = session
        peer.sequences[number] = sequence
        sequence.mirror.attach()
        opening = Open(
            session=number,
            tokens=sequence.committed(),
            sampling=sequence.submit.sampling,
            limits=self._limits(session),
            prompt=len(sequence.submit.prompt),
            traceparent=sequence.submit.traceparent,
        )
        self.send(link, opening)

    def _ready_for(self, sequence: DraftedSequence, now: float) -> int | None:
        """Return the link with the fewest sessions of those that take this sequence; None: none.

        Of equal ones that whose turn is longest ago: else targets that answer one request at a time
        would all use the first draft (eight of them and eight drafts, simulated: 2.95 tokens a
        pass, 3.90 with a draft each). Not that with the fewest so far: a draft that came back would
        get every request until it had had as many as the others.
        """
        ready = (
            (len(peer.sequences), peer.opened_last, link)
            for link, peer in self.peers.items()
            if peer.takes(sequence, now) and now >= sequence.not_before.get(link, 0.0)
        )
        return min(ready, default=(0, 0, None))[2]

    def _limit(self, sequence: DraftedSequence, session: TargetSession) -> None:
        """Send limits if the policy, the error scale or the lag has moved."""
        policy, scale = self.control.policy, self.control.scale.value
        nodes = policy.nodes_ahead if self._wanted(sequence) else 0
        ratio = scale / session.error_scale
        drift = (self.lag + LAG_UNIT) / (session.lag + LAG_UNIT)
        steady = 1 / SCALE_STEP < ratio < SCALE_STEP and 1 / LAG_STEP < drift < LAG_STEP
        shape = (policy.depth, policy.width)
        if nodes == session.nodes_ahead and shape == session.shape and steady:
            return
        if nodes and not session.nodes_ahead:
            self._catch_up(sequence, session)
        session.lag, session.shape = self.lag, shape
        session.nodes_ahead, session.error_scale = nodes, scale
        if nodes == 0:
            session.asked = None  # growth will come once it is wanted again: no measure of a lag
        session.granted = max(session.granted, nodes)
        self.send(session.link, self._limits(session))

    def _catch_up(self, sequence: DraftedSequence, session: TargetSession) -> None:
        """Send a draft that has rested all that was committed meanwhile."""
        if sequence.position > session.told:
            tokens = sequence.committed()[session.told + 1 :]
            self.send(session.link, Commit(session.number, session.told, tokens))
            session.told = session.level_at = sequence.position

    def _limits(self, session: TargetSession) -> Limits:
        policy = self.control.policy
        return Limits(
            session=session.number,
            depth=policy.depth,
            width=policy.width,
            nodes_ahead=session.nodes_ahead,
            error_scale=session.error_scale,
            link_lag_micros=int(self.lag * 1e6),
        )

    def _wanted(self, sequence: DraftedSequence) -> bool:
        return self.control.wants_drafts(sequence.submit)

    def _close(
        self,
        sequence: DraftedSequence,
        session: TargetSession,
        reason: CloseReason,
        detail: str = "",
    ) -> None:
        peer = self.peers.get(session.link)
        if peer is not None:
            peer.sequences.pop(session.number, None)
            self.send(session.link, Close(session.number, reason, detail))
        sequence.drop_session()

    def _closed_by_draft(self, peer: DraftPeer, close: Close, now: float) -> None:
        """Forget a session; the reason decides when, and for which sequences, it is asked again."""
        sequence = peer.sequences.pop(close.session, None)
        if sequence is None or sequence.session is None:
            return
        link = sequence.session.link
        logger.info(
            "session %d closed by its draft: %s %s",
            *(close.session, close.reason.name),
            close.detail,
        )
        sequence.drop_session()
        match close.reason:
            case CloseReason.DRAINING:
                peer.draining = True
            case CloseReason.OVERLOADED:
                peer.back_off(sequence.length, now)
            case CloseReason.TOO_LONG:
                sequence.not_before[link] = math.inf
            case _:
                sequence.not_before[link] = now + BACK_OFF_SECONDS
