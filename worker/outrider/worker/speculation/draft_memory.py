"""Memory of a draft that shares a device with its target: when it is lent to the target's KV.

Length and memory are decided together. Memory is lent where KV has been short for some steps and
drafting is off, or gains less than what the memory would bring; no draft token is planned until it
is back. It comes back once KV has been ample for a while. Pure (Nightjar, arXiv 2512.22420, its
memory policy): copies, blocks and the clock are the caller's.
"""

import math
from dataclasses import dataclass
from typing import NamedTuple

from outrider.contract.counters import DraftMemoryState

OFFLOAD, RELOAD = DraftMemoryState.OFFLOADING, DraftMemoryState.RELOADING
"""The two moves, by the state that each begins."""
NEXT = {OFFLOAD: DraftMemoryState.ON_HOST, RELOAD: DraftMemoryState.ON_DEVICE}
BEFORE = {OFFLOAD: DraftMemoryState.ON_DEVICE, RELOAD: DraftMemoryState.ON_HOST}


@dataclass(frozen=True, slots=True, kw_only=True)
class MemorySettings:
    """Thresholds of lending."""

    short_share: float = 0.10
    """Share of the target's own blocks under which free ones are short: the paper's best."""
    short_steps: int = 3
    """Steps in a row in which they must be: one step's dip is no pressure."""
    spare_share: float = 0.20
    """Share of its own blocks that must be free beyond the draft's before they go back: twice
    `short_share`, so that giving them back makes none short."""
    calm_seconds: float = 10.0
    """For how long that must hold: a lull between two bursts is no calm."""
    retry_seconds: float = 60.0
    """After a move that failed."""


class MemoryView(NamedTuple):
    """What is to be seen between two steps."""

    free: int
    """Blocks of the target's KV that could be had."""
    kv_waited_for: bool
    """True if a request waits for blocks, and for nothing else."""
    drafting: bool
    """True unless policy or switch has drafting rest; a check of the switch is no rest."""
    gain: float | None
    """Measured gain of drafting; None: not measured for long enough."""
    stepped: bool = True
    """True if the target has run a step since the last view: draft passes and polls are none."""


@dataclass(slots=True)
class Pressure:
    """Detector: free blocks below a threshold, for some steps in a row."""

    threshold: float
    steps: int
    seen: int = 0
    """Steps in a row."""

    def saw(self, view: MemoryView) -> bool:
        """Count a step of the target, if it is one; return True if it was under pressure."""
        if not view.stepped:
            return False
        short = view.kv_waited_for or view.free < self.threshold
        self.seen = self.seen + 1 if short else 0
        return self.seen >= self.steps


class DraftMemory:
    """State of a draft's memory, whose bytes are `lent` blocks beside the target's own.

    on_device -> offloading -> on_host -> reloading -> on_device. `wanted` says what is due,
    `begin` that it was ordered, `end` and `fail` how it ended.
    """

    def __init__(self, own: int, lent: int, settings: MemorySettings = MemorySettings()) -> None:
        self.own = own
        """Blocks of the target while the draft has its memory."""
        self.lent = lent
        """Blocks that the draft's memory makes."""
        self.state = DraftMemoryState.ON_DEVICE
        self._settings = settings
        self._pressure = Pressure(settings.short_share * own, settings.short_steps)
        self._calm_since = math.inf
        self._not_before = -math.inf

    @property
    def away(self) -> bool:
        """True if no draft pass may run."""
        return self.state is not DraftMemoryState.ON_DEVICE

    @property
    def moving(self) -> bool:
        """True while a copy is under way."""
        return self.state in NEXT

    def wanted(self, view: MemoryView, now: float) -> DraftMemoryState | None:
        """Count a view; return the move that is due, `OFFLOAD` or `RELOAD`, if one is."""
        short = self._pressure.saw(view)
        if self.state is DraftMemoryState.ON_DEVICE:
            due = short and self._may_rest(view)
            return OFFLOAD if due and now >= self._not_before else None
        if self.state is DraftMemoryState.ON_HOST:
            return RELOAD if self._calm(view, now) and now >= self._not_before else None
        return None

    def calm_at(self, now: float) -> float | None:
        """Return when calm will have lasted for long enough if nothing changes; None: there is
        none, or the draft has its memory."""
        if self.state is not DraftMemoryState.ON_HOST or self._calm_since == math.inf:
            return None
        return max(now, self._calm_since + self._settings.calm_seconds, self._not_before)

    def begin(self, move: DraftMemoryState) -> None:
        """Note that a move was ordered; raises `ValueError` where it cannot follow the state."""
        if BEFORE[move] is not self.state:
            raise ValueError(f"{move} cannot follow {self.state}")
        self.state = move
        self._pressure.seen, self._calm_since = 0, math.inf

    def end(self) -> None:
        """Note that the copy has ended; raises `ValueError` where there is none."""
        self._check_moving()
        self.state = NEXT[self.state]

    def fail(self, now: float) -> None:
        """Note that the copy has failed: all is as before, and not tried again for a while."""
        self._check_moving()
        self.state = BEFORE[self.state]
        self.refuse(now)

    def refuse(self, now: float) -> None:
        """Note that no move can begin now: none is wanted for a while."""
        self._not_before = now + self._settings.retry_seconds

    def put_off(self) -> None:
        """Note that the target cannot give its blocks back yet: calm begins anew."""
        self._calm_since = math.inf

    def _check_moving(self) -> None:
        if not self.moving:
            raise ValueError(f"no copy ends while the draft's memory is {self.state}")

    def _may_rest(self, view: MemoryView) -> bool:
        """True if drafting is off, or brings less than as many more requests as fit would at
        best; a gain that is not known yet may be more."""
        if not view.drafting:
            return True
        return view.gain is not None and view.gain - 1.0 < self.lent / self.own

    def _calm(self, view: MemoryView, now: float) -> bool:
        """True if KV has been ample for long enough."""
        enough = self.lent + self._settings.spare_share * self.own
        if view.kv_waited_for or view.free <= enough:
            self._calm_since = math.inf
            return False
        self._calm_since = min(self._calm_since, now)
        return now - self._calm_since >= self._settings.calm_seconds
