"""One draft as its target knows it: its sessions, whether it takes more, and how late it grows.

A draft that grows late beside the others, or not at all, is avoided for a while, then tried with
one session. Leaves what that means for sessions to `sessions`.
"""

import math
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from outrider.worker.link.wire import Capacity
from outrider.worker.messages import Room
from outrider.worker.target.request import Request

BACK_OFF_SECONDS = 0.5
MIN_BACK_OFF_SECONDS = 0.05
"""Least seconds from a refusal for want of room to the next try, however soon the draft says that
it has some."""
MAX_BACK_OFF_SECONDS = 60.0
LAG_MEMORY = 0.8
"""Weight of the past in the running mean of the lag."""
LOOKED_AT = 4
"""Latencies of which the least counts: late are those that are late each time."""
SLOW_FACTOR, SLOW_SECONDS = 3.0, 0.01
"""A draft is slow whose growth takes longer than the quickest draft's, times that and 10 ms more.
Drafts beside each other on one machine differ by less than twice; a link that is 5 ms longer each
way costs a target about one pass."""
LASTING_SECONDS = 0.1
"""For which a draft's latencies are late before it is slow: those of all its sequences end together
after one pause of its machine."""
COMPARED_SECONDS = 10.0
"""So long after the last of them, a draft's latencies tell nothing any more."""
SILENT_SECONDS = 1.0
"""A draft that has grown for a sequence and answers none of its commits for so long is silent; so
is one that computes text and grows for nobody for so long and what that text may take."""
AVOID_SECONDS, MAX_AVOID_SECONDS = 2.0, 60.0
"""For which one is avoided at first, twice as long each time; and at most. So long after the end of
that it is forgotten. A silent one, whose first growth ends it, is avoided twice as long."""


class Latency(NamedTuple):
    """From a commit to the first growth that knows it."""

    seconds: float
    sessions: int
    """Sessions that the draft carried for this target then, perhaps grown one after the other."""


@dataclass(slots=True)
class DraftPeer:
    """One draft whose link is up."""

    allowed: NDArray[np.bool_]
    """[vocabulary] token ids that its draft may propose."""
    sequences: dict[int, Request] = field(default_factory=dict)
    """Requests by session number."""
    room: Room | None = None
    """As its Hello announced; None: no bound is known."""
    next_session: int = 1
    opened_last: int = 0
    """Number of the session that the draft got last, of all its target's; 0: none in this life."""
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
    lag: float = 0.0
    """Seconds from a commit to the first growth that knows it, as the target's steps see it."""
    latencies: deque[Latency] = field(default_factory=lambda: deque(maxlen=LOOKED_AT))
    """The last of these times, but for the first of each session, in which it computes the text."""
    least: Latency | None = None
    """The least of them; None where there are too few to tell."""
    timed_at: float = -math.inf
    """When the last of them was added."""
    late_since: float = math.inf
    """Since when they are late, without a break; infinite while they are not."""
    avoided_until: float = -math.inf
    avoidances: int = 0
    """Times that it was avoided, one soon after the other, since it was last as quick as others."""
    silent: bool = False
    """It is avoided because it said nothing, and has said nothing since."""
    heard_at: float = -math.inf
    """When it last grew for anyone."""

    def takes(self, sequence: Request, now: float) -> bool:
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

    def saw_lag(self, seconds: float) -> None:
        """Take one such time into the running mean."""
        self.lag += (1 - LAG_MEMORY) * (seconds - self.lag)

    def is_avoided(self, now: float) -> bool:
        """True if sequences should be elsewhere."""
        return now < self.avoided_until

    def is_last_choice(self, now: float) -> bool:
        """True if it gets a session only where no other draft takes it: it is avoided, or was, and
        has the one session that shows whether it should be."""
        return self.is_avoided(now) or (self._was_avoided(now) and len(self.sequences) > 0)

    def judge(self, seconds: float, drafts: Iterable["DraftPeer"], now: float) -> bool:
        """Take one more latency; return whether the draft is avoided from now on because of it,
        beside those of all drafts."""
        if self.is_avoided(now):
            return False
        latency = Latency(seconds, len(self.sequences))
        self._add(latency, now)
        others = [one for one in drafts if one is not self]
        is_late = latency.seconds > _slow_from(others, latency.sessions, now)
        self.late_since = min(self.late_since, now) if is_late else math.inf
        if self.least is None:
            return False
        limit = _slow_from(others, self.least.sessions, now)
        if limit == math.inf:
            return False
        if self.least.seconds <= limit:
            self.avoidances = 0
            return False
        if now - self.late_since < LASTING_SECONDS:
            return False
        self.avoid(now)
        return True

    def tokens_to_compute(self) -> int:
        """Return how many tokens of its sequences it has to compute before it can grow."""
        sessions = (sequence.session for sequence in self.sequences.values())
        return sum(one.behind[1] for one in sessions if one is not None and one.behind is not None)

    def _was_avoided(self, now: float) -> bool:
        """True if it was, not long ago, and has not shown since that it should not be."""
        return self.avoidances > 0 and now < self.avoided_until + MAX_AVOID_SECONDS

    def _add(self, latency: Latency, now: float) -> None:
        """Add a latency to the last few."""
        if now - self.timed_at > COMPARED_SECONDS:
            self._forget()
        self.latencies.append(latency)
        self.timed_at = now
        if len(self.latencies) == LOOKED_AT:
            self.least = min(self.latencies)

    def _forget(self) -> None:
        """Forget the last few latencies."""
        self.latencies.clear()
        self.least, self.late_since = None, math.inf

    def seconds_for(self, sessions: int, now: float) -> float:
        """Return how long the draft would take at most with so many sessions, by what it took for
        those that it had; infinite where that is not known, or no longer."""
        if self.least is None or now - self.timed_at > COMPARED_SECONDS:
            return math.inf
        return self.least.seconds * max(1.0, sessions / self.least.sessions)

    def avoid(self, now: float, silent: bool = False) -> None:
        """Avoid the draft for a while."""
        before = self.avoidances if self._was_avoided(now) else 0
        seconds = min(AVOID_SECONDS * 2 ** min(before + silent, 16), MAX_AVOID_SECONDS)
        self.avoided_until, self.silent = now + seconds, silent
        self.avoidances = before + 1
        self._forget()

    def heard(self, now: float) -> None:
        """Note a sign of life: one that was avoided for its silence may be tried again."""
        self.heard_at = now
        if self.silent:
            self.avoided_until, self.silent = now, False


def _slow_from(others: Iterable[DraftPeer], sessions: int, now: float) -> float:
    """Return the latency over which a draft with so many sessions is slow beside others; infinite
    where nothing is known of them."""
    usual = min([one.seconds_for(sessions, now) for one in others], default=math.inf)
    return SLOW_FACTOR * usual + SLOW_SECONDS
