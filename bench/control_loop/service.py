"""A service made of arithmetic: one target and its drafts, second by second, for `control_loop`.

It has what the control loop acts on and is acted on by: requests that come at random, passes whose
cost grows with their rows, drafts that take time to start and to link. It leaves out trees, links
that fail and the target's own switch; costs are of the shape that GPUs have, not of one machine.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache

import numpy as np

from outrider.operator.control.inputs import ControlInputs, Decision
from outrider.operator.control.samples import CounterSample, DraftSample, Sample, TargetSample

MAX_RUNNING = 32
BASE_SECONDS = 0.03
"""A pass of few rows."""
DRAFTING_SECONDS, DRAFTING_SECONDS_EACH = 0.003, 0.0001
"""What drafting adds to a pass on the target's side, and to that for each sequence."""
START_SECONDS, LINK_SECONDS, STOP_SECONDS, CLOSE_SECONDS = 45, 5, 5, 4
NOISE = 0.03
"""Deviation of what a second of decoding yields."""


@dataclass(slots=True)
class Request:
    """One request; times are seconds since the start."""

    arrived: float
    tokens: float
    ended: float | None = None


@cache
def pace(running: int, most_rows: int, hit_rate: float, knee_rows: int) -> tuple[float, float, int]:
    """Tokens per second and sequence, plain-equivalent seconds by seconds, and rows.

    The rows are the best that a planner could pick for one pass, as the target's does.
    """
    plain = _pass_seconds(running, knee_rows)
    if not most_rows:
        return 1 / plain, 1.0, 0
    extra = DRAFTING_SECONDS + DRAFTING_SECONDS_EACH * running
    rates = [
        _tokens(rows, hit_rate) / (_pass_seconds(running * (rows + 1), knee_rows) + extra)
        for rows in range(most_rows + 1)
    ]
    best = max(rates)
    return best, best * plain, rates.index(best)


def _pass_seconds(rows: int, knee_rows: int) -> float:
    return BASE_SECONDS * float(np.hypot(1, rows / knee_rows))


def _tokens(rows: int, hit_rate: float) -> float:
    """Committed tokens of a pass over one path of so many rows."""
    return sum(hit_rate**depth for depth in range(rows + 1))


@dataclass(slots=True)
class SimulatedService:
    """Its state at one second."""

    requests: Sequence[Request]
    """In the order of arrival."""
    hit_rate: float
    """Chance that a draft token is accepted after accepted ones."""
    knee_rows: int
    """Rows from which on a pass is bound by arithmetic, not by memory."""
    noise: np.random.Generator
    now: int = 0
    speculate: bool = False
    max_rows: int = 16
    version: int = 0
    desired: int | None = None
    starts: list[int] = field(default_factory=list)
    """When each draft pod was started."""
    stops: list[int] = field(default_factory=list)
    """When each draft pod that was told to stop will be gone."""
    changed: int = -1000
    """When `speculate` last changed."""
    running: list[Request] = field(default_factory=list)
    queue: deque[Request] = field(default_factory=deque)
    counters: CounterSample = field(default_factory=CounterSample)
    draft_seconds: int = 0
    rows: int = 0
    _next: int = 0
    _left: dict[int, float] = field(default_factory=dict)

    def second(self) -> None:
        """Let one second pass."""
        self.now += 1
        self.stops = [at for at in self.stops if at > self.now]
        self.draft_seconds += len(self.starts) + len(self.stops)
        while self._next < len(self.requests) and self.requests[self._next].arrived < self.now:
            self.queue.append(self.requests[self._next])
            self._next += 1
        while self.queue and len(self.running) < MAX_RUNNING:
            admitted = self.queue.popleft()
            self._left[id(admitted)] = admitted.tokens
            self.running.append(admitted)
        if self.running:
            self._decode()

    def _decode(self) -> None:
        count = len(self.running)
        drafts = self.speculate and self.links > 0
        rate, gain, self.rows = pace(count, self.max_rows * drafts, self.hit_rate, self.knee_rows)
        luck = max(0.1, float(self.noise.normal(1, NOISE)))
        going = []
        for request in self.running:
            self._left[id(request)] -= rate * luck
            if self._left[id(request)] > 0:
                going.append(request)
            else:
                del self._left[id(request)]
                request.ended = self.now
        self.running = going
        passes = count * rate * luck / _tokens(self.rows, self.hit_rate)
        self.counters += CounterSample(
            plain_seconds=gain * luck,
            spent_seconds=1,
            passes=passes,
            drafted_passes=passes if self.rows else 0,
            tokens=count * rate * luck,
        )

    def _ready(self, extra: int = 0) -> int:
        return sum(self.now - at >= START_SECONDS + extra for at in self.starts)

    @property
    def links(self) -> int:
        """Links that are up."""
        return self._ready(LINK_SECONDS)

    @property
    def sessions(self) -> int:
        """Sessions on drafts; they close some seconds after drafting went off."""
        closed = not self.speculate and self.now - self.changed >= CLOSE_SECONDS
        return 0 if closed or not self.links else len(self.running)

    def samples(self) -> list[Sample]:
        """Return what its `/metrics` show."""
        target = TargetSample(
            uid="target",
            at=self.now,
            counters=self.counters,
            waiting=len(self.queue),
            running=len(self.running),
            kv_usage=len(self.running) / (1.4 * MAX_RUNNING),
            drafting="on" if self.speculate else "disabled",
            links_up=self.links,
            links=self._ready(),
        )
        drafts = [
            DraftSample(uid=f"draft{n}", at=self.now, sessions=self.sessions, kv_usage=0)
            for n in range(min(1, self._ready()))
        ]
        return [target, *drafts]

    def seen(self) -> ControlInputs:
        """Return what a pass sees beside metrics."""
        return ControlInputs(
            window=None,
            drafts_desired=self.desired,
            drafts_actual=len(self.starts) + len(self.stops),
            drafts_ready=self._ready(),
            links_up=self.links,
            links_expected=self._ready(),
            sessions=self.sessions,
            acknowledged=self.version,
        )

    def obey(self, decision: Decision) -> None:
        """Do what a pass decided."""
        if decision.speculate != self.speculate:
            self.changed = self.now
        self.speculate, self.max_rows = decision.speculate, decision.max_rows
        self.version, self.desired = decision.memory.version, decision.draft_replicas
        wanted = decision.draft_replicas or 0
        while len(self.starts) > wanted:
            self.starts.pop()
            self.stops.append(self.now + STOP_SECONDS)
        while len(self.starts) < wanted:
            self.starts.append(self.now)
