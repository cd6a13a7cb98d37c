"""The last two scrapes of the pods, one each interval; a window lies between them.

Kept by a process and not stored: after a restart there is no window until the second scrape, and
`starting` is True. Leaves asking the pods to its caller.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace

from outrider.operator.control import samples
from outrider.operator.control.samples import Sample, Window, is_quiet


@dataclass(frozen=True, slots=True)
class Scrapes:
    """The last two scrapes, by the pods' uids."""

    earlier: Mapping[str, Sample] = field(default_factory=dict)
    later: Mapping[str, Sample] = field(default_factory=dict)
    count: int = 0
    """Scrapes so far."""
    quiet_since: float | None = None
    """Since when the targets have had hardly any work, as far as was looked; None: they have."""

    @property
    def starting(self) -> bool:
        """True if there cannot be a window yet."""
        return self.count < 2

    def add(self, scraped: Iterable[Sample], pods: Collection[str], now: float) -> "Scrapes":
        """Add a scrape of the time `now`; a pod of `pods` that did not answer keeps its last
        sample, which ages. Targets with fewer than `MIN_PASSES`, and no request, are quiet."""
        known = {**self.later, **{sample.uid: sample for sample in scraped}}
        later = {uid: sample for uid, sample in known.items() if uid in pods}
        quiet = is_quiet(self.later, later) if self.count else False
        since = self.quiet_since if quiet is None or (quiet and self.quiet_since) else None
        if quiet and since is None:
            since = now
        return Scrapes(self.later, later, self.count + 1, since)

    def window(
        self, ready: Collection[str], now: float, stale_after_seconds: float
    ) -> Window | None:
        """Return the window of the `ready` targets (uids); None where it is not known."""
        found = samples.window(
            self.earlier, self.later, ready=ready, now=now, stale_after_seconds=stale_after_seconds
        )
        return None if found is None else replace(found, quiet_since=self.quiet_since)

    def sessions(
        self, ready: Collection[str], now: float, stale_after_seconds: float
    ) -> int | None:
        """Return the sessions on the `ready` drafts (uids); None where they are not known."""
        return samples.sessions(
            self.later, ready=ready, now=now, stale_after_seconds=stale_after_seconds
        )
