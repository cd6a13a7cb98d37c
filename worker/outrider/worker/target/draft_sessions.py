"""The target's half of the link: which draft guesses for which sequence, and its growth.

Opens, limits and closes sessions, checks everything that a draft sends, and puts it into the
mirrors. Bytes and reconnecting belong to `draft_links`; choosing rows to the scheduler.
"""

import logging
import math
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

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
from outrider.worker.messages import Room
from outrider.worker.target.draft_peer import BACK_OFF_SECONDS, DraftPeer
from outrider.worker.target.selection import RowSelector
from outrider.worker.target.sequence import Sequence, TargetSession
from outrider.worker.tree.validate import check_growth

logger = logging.getLogger(__name__)

CAUGHT_UP_TOKENS = 6
"""A draft further behind than this runs tokens that it missed: no measure of how fast it grows."""
LAG_MEMORY = 0.8
LAG_STEP = 1.5
"""The lag is sent again when it has moved by this factor,"""
LAG_UNIT = 0.002
"""give or take these seconds."""
SCALE_STEP = 1.1
"""The error scale is sent again when it has moved by this factor."""


@dataclass(slots=True)
class TargetSessions:
    """Every session of one target."""

    send: Callable[[int, FromTarget], None]
    row_selector: RowSelector
    peers: dict[int, DraftPeer] = field(default_factory=dict)
    dropped: int = 0
    """Nodes that arrived dead."""
    lag: float = 0.0
    """From a commit to the first growth that knows it, in seconds, as the target's steps see it."""

    def link_up(self, link: int, allowed: NDArray[np.bool_], room: Room | None = None) -> None:
        """A draft can be used, within the room that it announced."""
        self.peers[link] = DraftPeer(allowed, room=room)

    def link_down(self, link: int) -> None:
        """A draft is lost, and its sessions with it; their sequences go on alone."""
        peer = self.peers.pop(link, None)
        if peer is not None:
            for sequence in peer.sequences.values():
                self._forget(sequence)

    def tend(self, sequence: Sequence, now: float) -> None:
        """Opens a session for a sequence that has none, or sends limits that have changed."""
        if sequence.session is None:
            self._open(sequence, now)
        else:
            self._limit(sequence, sequence.session)

    def committed(
        self, sequence: Sequence, position: int, tokens: NDArray[np.int32], now: float
    ) -> None:
        """Tells the draft what followed the root at `position`."""
        session = sequence.session
        if session is not None:
            self.send(session.link, Commit(session.number, position, tokens))
            if session.asked is None and session.nodes_ahead > 0:
                session.asked = (position + len(tokens), now)

    def finished(self, sequence: Sequence) -> None:
        """Closes the session of a sequence that ends."""
        session = sequence.session
        if session is not None:
            self._close(sequence, session, CloseReason.FINISHED)

    def receive(self, link: int, message: FromDraft, now: float) -> None:
        """Applies one message of a draft; a message for a session that ended is ignored."""
        peer = self.peers.get(link)
        if peer is None:
            return
        if isinstance(message, Capacity):
            peer.has_room(message)
            return
        if isinstance(message, Close) and message.session == 0:
            self.violated(link, ProtocolViolation(f"the draft closed: {message.detail}"), now)
            return
        sequence = peer.sequences.get(message.session)
        if sequence is None or sequence.session is None:
            return
        match message:
            case Grow():
                self._grow(peer, sequence, sequence.session, message, now)
            case Close():
                self._closed_by_draft(peer, sequence, sequence.session, message, now)

    def violated(self, link: int, error: ProtocolViolation, now: float) -> None:
        """A peer sent something that is no message: none of its sessions can be trusted."""
        logger.warning("link %d: %s", link, error)
        peer = self.peers.get(link)
        if peer is None:
            return
        peer.distrust(now)
        for sequence in list(peer.sequences.values()):
            if sequence.session is not None:
                self._close(sequence, sequence.session, CloseReason.INVALID, str(error))

    def _grow(
        self, peer: DraftPeer, sequence: Sequence, session: TargetSession, grow: Grow, now: float
    ) -> None:
        try:
            check_growth(
                sequence.mirror,
                *(grow.root_position, grow.first_id, grow.parents, grow.tokens, grow.logprobs),
                vocabulary=len(peer.allowed),
                granted=session.granted,
                agreed=peer.allowed,
            )
        except ProtocolViolation as error:
            logger.warning("session %d of link %d: %s", session.number, session.link, error)
            self._close(sequence, session, CloseReason.INVALID, str(error))
            peer.distrust(now)
            return
        heard = sequence.mirror.acknowledged
        self.dropped += sequence.mirror.grow(
            grow.root_position, grow.first_id, grow.parents, grow.tokens, grow.logprobs
        )
        self._time_link(session, grow.root_position, now)
        if grow.root_position == sequence.position:
            sequence.growths += 1
            if grow.root_position - heard <= CAUGHT_UP_TOKENS:
                since = now - sequence.committed_at
                self.row_selector.patience.saw_growth(sequence.growths, since, now)

    def _time_link(self, session: TargetSession, root_position: int, now: float) -> None:
        """Learns the lag from the oldest commit that was not known to be heard yet."""
        if session.asked is not None and root_position >= session.asked[0]:
            self.lag += (1 - LAG_MEMORY) * (now - session.asked[1] - self.lag)
            session.asked = None

    def _open(self, sequence: Sequence, now: float) -> None:
        link = self._ready_for(sequence, now) if self._wanted(sequence) else None
        if link is None:
            return
        peer = self.peers[link]
        number, peer.next_session = peer.next_session, peer.next_session + 1
        nodes = self.policy.nodes_ahead
        session = TargetSession(link, number, nodes, self.row_selector.scale.value, nodes)
        session.lag, session.shape = self.lag, (self.policy.depth, self.policy.width)
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

    def _ready_for(self, sequence: Sequence, now: float) -> int | None:
        """The link with the fewest sessions among those that may take one more, this one."""
        ready = (
            (len(peer.sequences), link)
            for link, peer in self.peers.items()
            if peer.takes(sequence, now) and now >= sequence.not_before.get(link, 0.0)
        )
        return min(ready, default=(0, None))[1]

    def _limit(self, sequence: Sequence, session: TargetSession) -> None:
        """Sends limits if the policy or the error scale has moved."""
        scale = self.row_selector.scale.value
        nodes = self.policy.nodes_ahead if self._wanted(sequence) else 0
        ratio = scale / session.error_scale
        drift = (self.lag + LAG_UNIT) / (session.lag + LAG_UNIT)
        steady = 1 / SCALE_STEP < ratio < SCALE_STEP and 1 / LAG_STEP < drift < LAG_STEP
        shape = (self.policy.depth, self.policy.width)
        if nodes == session.nodes_ahead and shape == session.shape and steady:
            return
        session.lag, session.shape = self.lag, shape
        session.nodes_ahead, session.error_scale = nodes, scale
        if nodes == 0:
            session.asked = None  # growth will come once it is wanted again: no measure of a lag
        session.granted = max(session.granted, nodes)
        self.send(session.link, self._limits(session))

    def _limits(self, session: TargetSession) -> Limits:
        return Limits(
            session=session.number,
            depth=self.policy.depth,
            width=self.policy.width,
            nodes_ahead=session.nodes_ahead,
            error_scale=session.error_scale,
            link_lag_micros=int(self.lag * 1e6),
        )

    def _wanted(self, sequence: Sequence) -> bool:
        return self.row_selector.wants_drafts(sequence.submit)

    @property
    def policy(self) -> PolicySettings:
        """The policy in force."""
        return self.row_selector.policy

    def _close(
        self, sequence: Sequence, session: TargetSession, reason: CloseReason, detail: str = ""
    ) -> None:
        peer = self.peers.get(session.link)
        if peer is not None:
            peer.sequences.pop(session.number, None)
            self.send(session.link, Close(session.number, reason, detail))
        self._forget(sequence)

    def _closed_by_draft(
        self, peer: DraftPeer, sequence: Sequence, session: TargetSession, close: Close, now: float
    ) -> None:
        """Forgets a session; what its draft said decides when it is asked again, and for whom."""
        logger.info(
            "session %d closed by its draft: %s %s",
            *(close.session, close.reason.name),
            close.detail,
        )
        peer.sequences.pop(close.session, None)
        self._forget(sequence)
        match close.reason:
            case CloseReason.DRAINING:
                peer.draining = True
            case CloseReason.OVERLOADED:
                peer.overloaded(sequence.length, now)
            case CloseReason.TOO_LONG:
                sequence.not_before[session.link] = math.inf
            case _:
                sequence.not_before[session.link] = now + BACK_OFF_SECONDS

    @staticmethod
    def _forget(sequence: Sequence) -> None:
        sequence.session = None
        sequence.mirror.detach()
