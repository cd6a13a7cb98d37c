"""Sessions of a target's sequences on its drafts: which draft grows whose tree, and the growth.

Opens, limits and closes sessions, checks everything that a draft sends, and puts it into the
mirrors. Leaves bytes and reconnecting to `link/client`, and rows to `target/selection`.
"""

import logging
import math
from collections import deque
from collections.abc import Callable, Iterable
from collections.abc import Sequence as SequenceOf
from dataclasses import dataclass, field
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from outrider.contract.counters import Counters
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
from outrider.worker.messages import FromPeer, LinkDown, LinkUp, Room, SetPolicy
from outrider.worker.target.draft_peer import (
    BACK_OFF_SECONDS,
    LOOKED_AT,
    SILENT_SECONDS,
    SLOW_FACTOR,
    DraftPeer,
)
from outrider.worker.target.draft_switch import DraftSwitch
from outrider.worker.target.request import Request, TargetSession
from outrider.worker.target.stats import GrowthLatencies

logger = logging.getLogger(__name__)

CAUGHT_UP_TOKENS = 6
"""A draft further behind than this is in prefill: no measure of how fast it grows."""
TOGETHER_SECONDS = 0.0001
"""Growth that comes within so long of other growth comes together with it."""
LAG_STEP = 1.5
"""The lag is sent again when it has moved by this factor, plus or minus `LAG_UNIT`."""
LAG_UNIT = 0.002
"""Seconds."""
SCALE_STEP = 1.1
"""The error scale is sent again when it has moved by this factor."""

Control = TypeVar("Control", bound=DraftSwitch)
DraftNews = FromPeer | SetPolicy | LinkUp | LinkDown
"""What the server tells an engine of its drafts, and what these send."""


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
    latencies: GrowthLatencies = field(default_factory=GrowthLatencies)
    """Latencies from a commit to the first growth that knows it, as the target's steps see it."""
    _stepped_at: float = -math.inf
    """Time of the last step."""
    _stepping_since: float = -math.inf
    """Time of the first step since one took longer than a draft may say nothing."""
    _token_seconds: deque[float] = field(default_factory=lambda: deque(maxlen=LOOKED_AT))
    """Seconds that drafts took for each token of the last few texts that they had to compute."""

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

    def update(self, sequence: Request, now: float) -> None:
        """Open a session for a sequence that has none, or send limits that have changed.

        One whose draft is avoided moves to a draft that is not, where one takes it.
        """
        if now - self._stepped_at > SILENT_SECONDS:
            self._stepping_since = now
        self._stepped_at = now
        session = sequence.session
        if session is not None and len(self.peers) > 1 and self._moves(sequence, session, now):
            self._close(sequence, session, CloseReason.FINISHED)
        if sequence.session is None:
            self._open(sequence, now)
        else:
            self._limit(sequence, sequence.session, now)

    def commit(
        self,
        sequence: Request,
        position: int,
        tokens: NDArray[np.int32],
        now: float,
        follows: bool = False,
    ) -> None:
        """Send the draft the tokens after the root at `position`, unless it `follows` by itself.

        A draft that rests is sent nothing: it gets all of them once it is to grow again.
        """
        session = sequence.session
        if session is not None and session.nodes_ahead > 0:
            session.told = position + len(tokens)
            if not follows:
                self.send(session.link, Commit(session.number, position, tokens.copy()))
            if session.asked is None:
                session.asked = (session.told, now)

    def grew(
        self, sequence: Request, root_position: int, now: float, caught_up: bool = True
    ) -> None:
        """Note growth that is in the mirror.

        `caught_up`: the draft knew the text before it nearly to its end.
        """
        session = sequence.session
        assert session is not None
        peer = self.peers[session.link]
        latency = self._time_link(session, root_position, now)
        if latency is not None and session.grown and session.level_at is None:
            self._judge(peer, session.link, latency, now)
        session.grown = True
        tells = caught_up and not peer.is_avoided(now)  # of drafts that are used
        if session.level_at is not None and root_position >= session.level_at:
            session.level_at = None
        if session.behind is not None and session.level_at is None:
            since, tokens = session.behind
            self._token_seconds.append(max(0.0, now - since) / tokens)
            session.behind = None
        if root_position == sequence.position:
            self._count_growth(sequence, now, tells)
        elif latency is not None and tells:
            self.control.account.saw_latency(latency, now)

    def finish(self, sequence: Request) -> None:
        """Close the session of a sequence that ends."""
        session = sequence.session
        if session is not None:
            self._close(sequence, session, CloseReason.FINISHED)

    def receive(self, link: int, messages: Iterable[FromDraft], arrived: float) -> None:
        """Apply messages that came together; ignore those for a session that has ended."""
        for message in messages:
            self._apply(link, message, arrived)

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
        peer.heard(now)
        sequence, growth = peer.sequences.get(message.session), message.growth
        if sequence is None or sequence.session is None:
            return
        session = sequence.session
        heard = sequence.mirror.acknowledged
        self.dropped += sequence.mirror.receive(growth, session.granted, peer.allowed)
        caught_up = growth.root_position - heard <= CAUGHT_UP_TOKENS
        self.grew(sequence, growth.root_position, now, caught_up)

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
        self.peers[session.link].saw_lag(latency)
        self.latencies.add(latency)
        session.asked = None
        return latency

    def _count_growth(self, sequence: Request, now: float, tells: bool) -> None:
        """Count growth of the present root, and learn how long it took.

        Nothing waits for growth behind a prompt that is not computed: a colocated draft grows there
        only while others are waited for.
        """
        account, first = self.control.account, sequence.growths == 0
        timed = tells and not sequence.needs_prefill
        since = max(0.0, now - (sequence.committed_at if first else sequence.grew_at))
        if not first and since < TOGETHER_SECONDS:
            return
        if first and timed:
            account.saw_latency(since, now)
        elif timed:
            account.saw_period(since)
        sequence.growths += 1
        sequence.grew_at = now

    def _open(self, sequence: Request, now: float) -> None:
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
            lag=peer.lag,
            shape=(policy.depth, policy.width),
            told=sequence.position,
            behind=(now, sequence.length),
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

    def _ready_for(self, sequence: Request, now: float) -> int | None:
        """Return the link with the fewest sessions of those that take this sequence; None: none.

        One whose draft is avoided comes last. Of equal ones that whose turn is longest ago: else
        targets that answer one request at a time would all use the first draft (eight of them and
        eight drafts, simulated: 2.95 tokens per pass, 3.90 with a draft each). Not that with the
        fewest so far: a draft that came back would get every request until it had had as many as
        the others.
        """
        ready = (
            (peer.is_last_choice(now), len(peer.sequences), peer.opened_last, link)
            for link, peer in self.peers.items()
            if peer.takes(sequence, now) and now >= sequence.not_before.get(link, 0.0)
        )
        return min(ready, default=(False, 0, 0, None))[3]

    def _moves(self, sequence: Request, session: TargetSession, now: float) -> bool:
        """True if a sequence is to leave its draft, which is late or silent, for another."""
        peer = self.peers[session.link]
        if not peer.is_avoided(now) and self._is_silent(session, now):
            peer.avoid(now, silent=True)
            logger.info(
                "link %d: no growth for %.1f s; its draft is avoided for %.0f s",
                *(session.link, SILENT_SECONDS, peer.avoided_until - now),
            )
        if not peer.is_avoided(now) or not self._wanted(sequence):
            return False
        other = self._ready_for(sequence, now)
        return other is not None and not self.peers[other].is_last_choice(now)

    def _is_silent(self, session: TargetSession, now: float) -> bool:
        """True if a draft has long answered none of a sequence's commits, or has long grown for
        nobody while it computes the sequence's text.

        After a step that took as long itself, growth may have come that is not read yet: its time
        is counted from then on.
        """
        if session.behind is None:
            asked = math.inf if session.asked is None else session.asked[1]
            return now - max(asked, self._stepping_since) > SILENT_SECONDS
        peer = self.peers[session.link]
        quiet = now - max(session.behind[0], peer.heard_at, self._stepping_since)
        if quiet <= SILENT_SECONDS or not self._token_seconds or session.nodes_ahead == 0:
            return False
        text = max(self._token_seconds) * peer.tokens_to_compute()
        return quiet > SILENT_SECONDS + SLOW_FACTOR * text

    def _judge(self, peer: DraftPeer, link: int, latency: float, now: float) -> None:
        """Avoid a draft that has become slow beside another."""
        if peer.judge(latency, self.peers.values(), now):
            logger.info(
                "link %d: growth comes %.0f ms after commits; its draft is avoided for %.0f s",
                *(link, 1e3 * latency, peer.avoided_until - now),
            )

    def _limit(self, sequence: Request, session: TargetSession, now: float) -> None:
        """Send limits if the policy, the error scale or the lag has moved."""
        policy, scale = self.control.policy, self.control.scale.value
        nodes = policy.nodes_ahead if self._wanted(sequence) else 0
        ratio = scale / session.error_scale
        lag = self.peers[session.link].lag
        drift = (lag + LAG_UNIT) / (session.lag + LAG_UNIT)
        steady = 1 / SCALE_STEP < ratio < SCALE_STEP and 1 / LAG_STEP < drift < LAG_STEP
        shape = (policy.depth, policy.width)
        if nodes == session.nodes_ahead and shape == session.shape and steady:
            return
        if nodes and not session.nodes_ahead:
            self._catch_up(sequence, session, now)
        session.lag, session.shape = lag, shape
        session.nodes_ahead, session.error_scale = nodes, scale
        if nodes == 0:
            session.asked = None  # growth will come once it is wanted again: no measure of a lag
        session.granted = max(session.granted, nodes)
        self.send(session.link, self._limits(session))

    def _catch_up(self, sequence: Request, session: TargetSession, now: float) -> None:
        """Send a draft that has rested all that was committed meanwhile."""
        missing = 0 if session.behind is None else session.behind[1]
        if sequence.position > session.told:
            tokens = sequence.committed()[session.told + 1 :]
            self.send(session.link, Commit(session.number, session.told, tokens))
            session.told = session.level_at = sequence.position
            missing += len(tokens)
        if missing:
            session.behind = (now, missing)

    def _limits(self, session: TargetSession) -> Limits:
        policy = self.control.policy
        return Limits(
            session=session.number,
            depth=policy.depth,
            width=policy.width,
            nodes_ahead=session.nodes_ahead,
            error_scale=session.error_scale,
            link_lag_micros=int(session.lag * 1e6),
        )

    def _wanted(self, sequence: Request) -> bool:
        return self.control.wants_drafts(sequence.submit)

    def _close(
        self,
        sequence: Request,
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
