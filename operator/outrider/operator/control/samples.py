"""Samples of pods' metrics at one time, and the work between two of them. Pure.

Half of the targets are a quorum: targets share their drafts and their load, so the rest is like
them. What must hold for every target, such as that none has work, does not go by it.

Leaves reading the workers to `workers`, windows to `scrapes`, and judging them to `evidence`.
"""

from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import Self

from outrider.contract.settings import Role


@dataclass(frozen=True, slots=True, kw_only=True)
class CounterSample:
    """Counters of a target since it started; of several, or of a window, summed."""

    plain_seconds: float = 0.0
    """Seconds that plain decoding would have taken for the tokens."""
    spent_seconds: float = 0.0
    """Seconds that the tokens took."""
    passes: float = 0.0
    """Verify passes of a sequence."""
    drafted_passes: float = 0.0
    """Verify passes of a sequence over one node row or more."""
    tokens: float = 0.0
    """Tokens that verify passes committed."""
    first_guesses: float = 0.0
    """Verify passes of a sequence with a first draft token: the likeliest next one."""
    first_hits: float = 0.0
    """Verify passes of a sequence whose first draft token was accepted."""
    local_plain_seconds: float = 0.0
    """Part of `plain_seconds` for the tokens that local sources brought, without any draft."""
    local_spent_seconds: float = 0.0
    """Part of `spent_seconds` that the rows of local sources took."""

    @property
    def drafts_seconds(self) -> float:
        """Seconds by which drafts are judged: what local sources bring needs no draft, and is no
        reason to hold one."""
        return self.spent_seconds - self.local_spent_seconds

    @property
    def drafts_plain_seconds(self) -> float:
        """Seconds of plain decoding that the work of `drafts_seconds` was worth."""
        return max(0.0, self.plain_seconds - self.local_plain_seconds)

    def since(self, earlier: Self) -> Self:
        """Return the increase since `earlier`; all of it if one fell: the pod has restarted."""
        pairs = [(getattr(self, name), getattr(earlier, name)) for name in COUNTERS]
        if any(now < then for now, then in pairs):
            return self
        return type(self)(**{name: getattr(self, name) - getattr(earlier, name)
                             for name in COUNTERS})  # fmt: skip

    def __add__(self, other: Self) -> Self:
        return type(self)(**{name: getattr(self, name) + getattr(other, name)
                             for name in COUNTERS})  # fmt: skip


COUNTERS = tuple(field.name for field in fields(CounterSample))


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetSample:
    """One target at one moment."""

    uid: str
    """The pod's; a container that restarts keeps it."""
    at: float
    """When it was asked, in seconds of the loop's clock."""
    counters: CounterSample
    waiting: float
    """Requests that wait."""
    running: float
    """Requests that hold KV."""
    kv_usage: float
    """Share of KV in use, 0 to 1."""
    links_up: int
    """Links to drafts that work."""
    links: int
    """Links to drafts in all."""

    @property
    def role(self) -> Role:
        """Role of the pod."""
        return Role.TARGET


@dataclass(frozen=True, slots=True, kw_only=True)
class DraftSample:
    """One draft at one moment."""

    uid: str
    """The pod's."""
    at: float
    """When it was asked, in seconds of the loop's clock."""
    sessions: float
    """Sessions that hold KV."""
    kv_usage: float
    """Share of KV in use, 0 to 1."""

    @property
    def role(self) -> Role:
        """Role of the pod."""
        return Role.DRAFT


Sample = TargetSample | DraftSample


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """Work of the targets between two scrapes."""

    began: float
    """The earlier scrape of the pod that was asked first."""
    ended: float
    """The later scrape of the pod that was asked first: where the next window begins."""
    targets: int
    """Targets whose gauges are in it."""
    silent: int = 0
    """Ready targets that are not in it."""
    counters: CounterSample
    """Summed over pods seen at both ends."""
    waiting: float
    """Requests that wait at the end, over all targets."""
    running: float
    """Requests that hold KV at the end, over all targets."""
    kv_usage: float
    """Share of KV in use at the end, 0 to 1, of the fullest target."""
    quiet_since: float | None = None
    """Since when there has hardly been work; None: there is some."""

    @property
    def gain_percent(self) -> float | None:
        """Gain of the service's drafts; None where nothing was decoded."""
        seconds = self.counters.drafts_seconds
        return 100 * self.counters.drafts_plain_seconds / seconds if seconds > 0 else None

    @property
    def waiting_per_target(self) -> float:
        """Requests that wait, on the average of the targets."""
        return self.waiting / self.targets

    @property
    def running_per_target(self) -> float:
        """Requests that hold KV, on the average of the targets."""
        return self.running / self.targets

    @property
    def tokens_per_pass(self) -> float | None:
        """Committed tokens by verify passes; None without a pass."""
        c = self.counters
        return c.tokens / c.passes if c.passes else None

    @property
    def hit_rate(self) -> float | None:
        """Share of first draft tokens that were accepted; None without one."""
        c = self.counters
        return c.first_hits / c.first_guesses if c.first_guesses else None


def is_quorum(some: int, every: int) -> bool:
    """True if `some` targets speak for `every` one."""
    return some > 0 and 2 * some >= every


def agreed_version(versions: Iterable[int]) -> int:
    """Return the newest policy version that a quorum follows; a silent target counts as 0."""
    newest = sorted(versions, reverse=True)
    return newest[(len(newest) - 1) // 2] if newest else 0
