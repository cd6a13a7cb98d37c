"""Clocks of stages, brought to the leader's.

Stages of one machine share a clock. Where they do not, nothing tells how long each link took, only
how long all took together: of the fastest segment each link is taken to have taken the same, and
what a clock differs by follows from that. Pure.
"""

import numpy as np
from numpy.typing import NDArray

from outrider.worker.pipeline.records import ARRIVED, BEGAN, ENDED, Visits

FORGET_SECONDS = 10.0
"""Age at which the fastest segment is forgotten: clocks drift, some ms a minute at worst."""

Offsets = NDArray[np.float64]


class StageClocks:
    """What each stage's clock is ahead of the leader's; learned from segments that are back."""

    def __init__(self) -> None:
        self._offsets: Offsets | None = None
        """float64[stages]; None while all clocks agree."""
        self._fastest = np.inf
        """Seconds on all links, of the segment that the offsets are from."""
        self._learned_at = -np.inf

    def aligned(self, visits: Visits, sent: float, back: float) -> Visits:
        """Return the visits of a segment by the leader's clock, on which it left and came back."""
        if self._offsets is None and agree(visits, sent, back):
            return visits
        links = links_seconds(visits, sent, back)
        if links <= self._fastest or back - self._learned_at > FORGET_SECONDS:
            self._offsets = offsets(visits, sent, back)
            self._fastest, self._learned_at = links, back
        found = visits.copy()
        found[:, [ARRIVED, BEGAN, ENDED]] -= self._offsets[:, None]  # type: ignore[index]
        return found


def agree(visits: Visits, sent: float, back: float) -> bool:
    """True if no stage got a segment before the one before it had done with it."""
    left = np.concatenate([[sent], visits[:, ENDED]])
    came = np.concatenate([visits[:, ARRIVED], [back]])
    return bool((came >= left).all())


def links_seconds(visits: Visits, sent: float, back: float) -> float:
    """Return the seconds of a segment's way that it was in no stage."""
    return back - sent - float((visits[:, ENDED] - visits[:, ARRIVED]).sum())


def offsets(visits: Visits, sent: float, back: float) -> Offsets:
    """Return float64[stages], by how much each clock is ahead if all links took the same time."""
    inside = visits[:, ENDED] - visits[:, ARRIVED]
    each = links_seconds(visits, sent, back) / (len(visits) + 1)
    before = np.concatenate([[0.0], np.cumsum(inside)[:-1]])
    came = sent + each * np.arange(1, len(visits) + 1) + before
    ahead: Offsets = visits[:, ARRIVED] - came
    return ahead
