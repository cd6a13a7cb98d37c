"""The last two looks at the pods, from which windows are made: one look each interval.

Kept by a process and not stored: after a restart there is no window until the second look, and
`starting` says so. Leaves asking the pods to its caller.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from outrider.operator.control import samples
from outrider.operator.control.samples import Sample, Window


@dataclass(frozen=True, slots=True)
class Looks:
    """What was seen lately, by the pods' uids."""

    earlier: Mapping[str, Sample] = field(default_factory=dict)
    later: Mapping[str, Sample] = field(default_factory=dict)
    taken: int = 0
    """Looks so far."""

    @property
    def starting(self) -> bool:
        """Whether there cannot be a window yet."""
        return self.taken < 2

    def add(self, scraped: Iterable[Sample], pods: Collection[str]) -> "Looks":
        """One look; a pod of `pods` that did not answer keeps its last sample, which ages."""
        known = {**self.later, **{sample.uid: sample for sample in scraped}}
        later = {uid: sample for uid, sample in known.items() if uid in pods}
        return Looks(self.later, later, self.taken + 1)

    def window(
        self, ready: Collection[str], now: float, stale_after_seconds: float
    ) -> Window | None:
        """What the `ready` targets (uids) did between the looks; None where that is not known."""
        return samples.window(
            self.earlier, self.later, ready=ready, now=now, stale_after_seconds=stale_after_seconds
        )

    def sessions(
        self, ready: Collection[str], now: float, stale_after_seconds: float
    ) -> int | None:
        """Sessions on the `ready` drafts (uids); None where that is not known."""
        return samples.sessions(
            self.later, ready=ready, now=now, stale_after_seconds=stale_after_seconds
        )
