"""The last two scrapes of the pods, one each interval; a window lies between them.

Kept by a process and not stored: after a restart there is no window until the second scrape, and
`starting` is True. Leaves asking the pods to its caller.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace

from outrider.operator.control.evidence import GainWindow
from outrider.operator.control.samples import (
    CounterSample,
    DraftSample,
    Sample,
    TargetSample,
    Window,
    is_quorum,
)
from outrider.operator.control.settings import MIN_PASSES, WINDOWS

PROBED = 0.1
"""Share of a target's passes that its own switch, while it is off, probes at most: a second in
fifteen at first, and ever less."""


@dataclass(frozen=True, slots=True)
class Scrapes:
    """The last two scrapes, by the pods' uids."""

    earlier: Mapping[str, Sample] = field(default_factory=dict)
    later: Mapping[str, Sample] = field(default_factory=dict)
    gains: tuple[GainWindow, ...] = ()
    """The last `WINDOWS` windows in which targets that had a linked draft did some work."""
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
        sample, which ages."""
        known = {**self.later, **{sample.uid: sample for sample in scraped}}
        later = {uid: sample for uid, sample in known.items() if uid in pods}
        added = Scrapes(self.later, later, self.gains, self.count + 1)
        if (measured := added._gain()) is not None:
            added = replace(added, gains=(*self.gains, measured)[-WINDOWS:])
        quiet = added._is_quiet if self.count else False
        since = self.quiet_since if quiet is None or (quiet and self.quiet_since) else None
        return replace(added, quiet_since=now if quiet and since is None else since)

    def _gain(self) -> GainWindow | None:
        """Return the gain over all targets that answered at both ends, by their seconds."""
        pairs = self._pairs(self.later.values())
        if not any(after.links_up for _, after in pairs):
            return None
        each = [b.counters.since(a.counters) for a, b in pairs]
        done = sum(each, start=CounterSample())
        seconds = done.drafts_seconds
        if seconds <= 0:
            return None
        began, ended = min(a.at for a, _ in pairs), min(b.at for _, b in pairs)
        used = any(one.first_guesses > PROBED * one.passes for one in each)
        return GainWindow(began, ended, done.drafts_plain_seconds / seconds, seconds, used)

    def _pairs(self, ends: Iterable[Sample]) -> list[tuple[TargetSample, TargetSample]]:
        """Return the samples of those targets that were sampled at both ends."""
        return [
            (before, end)
            for end in ends
            if isinstance(end, TargetSample)
            and isinstance(before := self.earlier.get(end.uid), TargetSample)
            and before.at < end.at
        ]

    @property
    def _is_quiet(self) -> bool | None:
        """True if the targets have no request at the end and ran fewer than `MIN_PASSES`; None:
        none answered.

        A target that did not answer counts once it does: its counters then show what it did
        meanwhile.
        """
        ends = [sample for sample in self.later.values() if isinstance(sample, TargetSample)]
        pairs = [(self.earlier.get(end.uid), end) for end in ends]
        news = [(a, b) for a, b in pairs if a is None or a.at < b.at]
        if not news:
            return None
        if any(end.waiting or end.running for _, end in news):
            return False
        increases = (b.counters.since(a.counters) for a, b in news if isinstance(a, TargetSample))
        return sum(counters.passes for counters in increases) < MIN_PASSES

    def window(
        self, ready: Collection[str], now: float, stale_after_seconds: float
    ) -> Window | None:
        """Return the window of the `ready` targets (uids); None where it is not known.

        It is not known if no quorum of them was sampled within `stale_after_seconds`, or none at
        both ends. A pod sampled only at the later end has gauges and no counters.
        """
        found = [one for uid in ready if isinstance(one := self.later.get(uid), TargetSample)]
        ends = [sample for sample in found if now - sample.at <= stale_after_seconds]
        pairs = self._pairs(ends)
        if not pairs or not is_quorum(len(ends), len(ready)):
            return None
        return replace(_between(pairs, ends, len(ready)), quiet_since=self.quiet_since)

    def sessions(
        self, ready: Collection[str], now: float, stale_after_seconds: float
    ) -> int | None:
        """Return the sessions on the `ready` drafts (uids); None where one was not sampled
        lately."""
        found = [one for uid in ready if isinstance(one := self.later.get(uid), DraftSample)]
        fresh = [sample for sample in found if now - sample.at <= stale_after_seconds]
        return round(sum(s.sessions for s in fresh)) if len(fresh) == len(ready) else None


def _between(
    pairs: list[tuple[TargetSample, TargetSample]], ends: list[TargetSample], ready: int
) -> Window:
    every = ready / len(ends)  # silent targets are taken to have as much as the others
    return Window(
        began=min(before.at for before, _ in pairs),
        ended=min(end.at for _, end in pairs),
        targets=ready,
        silent=ready - len(pairs),
        counters=sum((b.counters.since(a.counters) for a, b in pairs), start=CounterSample()),
        waiting=every * sum(end.waiting for end in ends),
        running=every * sum(end.running for end in ends),
        kv_usage=max(end.kv_usage for end in ends),
    )
