"""One draft, as its target's sessions know it: which it has, and whether it takes more.

Leaves the sessions themselves to `sessions`, and the stream to `draft_links`.
"""

import math
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from outrider.worker.link.wire import Capacity
from outrider.worker.messages import Room
from outrider.worker.target.sequence import Sequence

BACK_OFF_SECONDS = 0.5
MIN_BACK_OFF_SECONDS = 0.05
"""From a refusal for want of room to the next try, however soon the draft says that it has some."""
MAX_BACK_OFF_SECONDS = 60.0


@dataclass(slots=True)
class DraftPeer:
    """One link that is up."""

    allowed: NDArray[np.bool_]
    """[vocabulary] ids that its draft may guess."""
    sequences: dict[int, Sequence] = field(default_factory=dict)
    """By session number."""
    room: Room | None = None
    """What its Hello announced; None: no bound is known."""
    next_session: int = 1
    draining: bool = False
    """It takes no more sessions in this life."""
    overloaded_at: float = -math.inf
    """When it last had no room,"""
    overloaded_until: float = 0.0
    """and how long that is believed,"""
    overloaded_by: int = 0
    """for a sequence of how many tokens."""
    distrusted_until: float = 0.0
    violations: int = 0

    def takes(self, sequence: Sequence, now: float) -> bool:
        """Whether it can be asked to draft for a sequence."""
        if self.draining or now < max(self.overloaded_until, self.distrusted_until):
            return False
        room = self.room
        return room is None or (
            len(self.sequences) < room.sessions and sequence.length < room.context
        )

    def distrust(self, now: float) -> None:
        """Opens no session for a while; each time that the draft breaks the rules for longer."""
        self.distrusted_until = now + min(
            BACK_OFF_SECONDS * 2 ** min(self.violations, 16), MAX_BACK_OFF_SECONDS
        )
        self.violations += 1

    def overloaded(self, tokens: int, now: float) -> None:
        """It refused a session of so many tokens for want of room."""
        self.overloaded_at, self.overloaded_until = now, now + BACK_OFF_SECONDS
        self.overloaded_by = tokens

    def has_room(self, capacity: Capacity) -> None:
        """It says what it can take; that ends a back-off for want of room, and no other."""
        if capacity.sessions > 0 and capacity.tokens >= max(1, self.overloaded_by):
            self.overloaded_until = self.overloaded_at + MIN_BACK_OFF_SECONDS
