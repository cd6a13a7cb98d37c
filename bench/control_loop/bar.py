"""The bar of the control loop: days of a service beside drafting always on and always off.

Gain stays, moves, alternates or jumps, and windows show it with the deviation of few answers. Work
is seconds of plain decoding over seconds of the targets; drafts take a minute to start. Windows are
made as the loop sees them, without scrapes, so that thousands of days pass in minutes.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from bench.control_loop.plants import DRAFTS, turns
from outrider.operator.control.evidence import GainWindow
from outrider.operator.control.inputs import ControlInputs
from outrider.operator.control.memory import Phase, PolicyInForce, new_memory
from outrider.operator.control.policy import decide
from outrider.operator.control.samples import CounterSample, Window
from outrider.operator.control.settings import WINDOWS, ControlSettings

DAY, HOUR, SEEDS, START_SECONDS = 86_400, 3600, 20, 60
INTERVAL = 15
SPREAD = {"16 answers, 1 %": 0.0025, "4, 15 %": 0.076, "1, 15 %": 0.155, "1, 25 %": 0.25}
"""Deviation of the gain of a window, by its answers and theirs."""
EQUAL, HALVES = (1.0,), tuple(2.0**-n for n in range(8))
Gain = Callable[[float], float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A kind of day; each seed has its own phase and noise."""

    group: str
    name: str
    gain: Callable[[float], Gain]
    """Gain of drafting by time, for a number between 0 and 1 that shifts it."""
    spread: float
    """Deviation of a window of one target."""
    busy: tuple[float, ...] = EQUAL
    """Share of the time that each target has work."""
    declining: int = 0
    """Targets, from the first, whose own switch keeps drafting off."""
    many: int = 1
    """Requests that run while drafting loses; over 1, the targets' own switch then holds 1.0."""

    @property
    def drafting(self) -> float:
        """Share of the targets' seconds in which they draft."""
        return sum(self.busy[self.declining :]) / sum(self.busy)

    @property
    def deviation(self) -> float:
        """Deviation of a window over all targets."""
        return self.spread * math.hypot(*self.busy[self.declining :]) / sum(self.busy)


def cases() -> Iterator[Case]:
    """Return all kinds of days."""
    for words, spread in SPREAD.items():
        for gain in (0.8, 0.9, 0.95, 1.0, 1.04, 1.08, 1.12, 1.2, 1.4, 1.6):
            group = "pays" if gain > 1 else "does not pay"
            yield Case(group=group, name=f"{gain}; {words}", gain=_still(gain), spread=spread)
        for slope in (0.1, 0.04):
            name = f"{slope} an hour; {words}"
            yield Case(group="moves", name=name, gain=_moving(slope), spread=spread)
    for gain in (0.9, 1.08, 1.6):
        named = {"group": "8 unequal targets", "name": f"{gain}"}
        yield Case(**named, gain=_still(gain), spread=0.25, busy=HALVES)
    named = {"group": "2 of 4 targets decline", "name": "1.7"}
    yield Case(**named, gain=_still(1.7), spread=0.155, busy=EQUAL * 4, declining=2)
    for words in ("16 answers, 1 %", "1, 25 %"):
        spread = SPREAD[words]
        for seconds in (300, 600, 900, 1800, 3600, 7200):
            name = f"{seconds // 60} min; {words}"
            turning = {"name": name, "gain": _turns(seconds), "spread": spread}
            yield Case(group="turns", **turning)
            yield Case(group="turns of 1 and 32 requests", **turning, many=32)
        for first, then in ((0.9, 1.6), (1.6, 0.9), (0.8, 1.2), (1.2, 0.8), (0.8, 1.6)):
            name = f"{first} to {then}; {words}"
            yield Case(group="jumps once", name=name, gain=_jump(first, then), spread=spread)


def _still(gain: float) -> Callable[[float], Gain]:
    return lambda phase: lambda now: gain


def _moving(slope: float) -> Callable[[float], Gain]:
    """To and fro between 0.8 and 1.6, so much an hour."""

    def gain(phase: float, now: float) -> float:
        way = (1.6 * phase + slope * now / HOUR) % 1.6
        return 0.8 + min(way, 1.6 - way)

    return lambda phase: lambda now: gain(phase, now)


def _turns(seconds: float) -> Callable[[float], Gain]:
    """1.6 and 0.9, each for so long."""
    swing = turns(seconds, 0.9, 1.6)
    return lambda phase: lambda now: swing(now + 2 * seconds * phase)


def _jump(first: float, then: float) -> Callable[[float], Gain]:
    return lambda phase: lambda now: first if now < HOUR * (1 + 22 * phase) else then


def day(case: Case, seed: int) -> tuple[float, float]:
    """Return percent of work under the better of always on and always off, and of the day that
    drafts ran."""
    numbers = np.random.default_rng(seed)
    swing, settings = case.gain(float(numbers.random())), ControlSettings()
    first = PolicyInForce(version=1, speculate=True, max_rows=settings.max_rows)
    memory, asked, linked_at = new_memory(settings, 0.0, first), DRAFTS, 0.0
    now, gains, on, work, drafted = 0.0, list[GainWindow](), 0.0, 0.0, 0.0
    while now < DAY:
        rests = memory.phase is Phase.OFF and not asked
        jumps = memory.phase is Phase.ON or (rests and case.many == 1)
        for _ in range(WINDOWS if jumps else 1):
            worth = case.drafting * swing(now) + 1 - case.drafting
            crowded = case.many > 1 > worth
            worth = 1.0 if crowded else worth
            drafts, now = memory.speculate, now + INTERVAL
            used = drafts and not crowded
            shown = worth + case.deviation * numbers.standard_normal()
            gains.append(GainWindow(now - INTERVAL, now, shown if used else 1.0, INTERVAL, used))
            on += INTERVAL * worth
            work += INTERVAL * (worth if drafts else 1.0)
            drafted += INTERVAL * (asked > 0)
        gains = gains[-WINDOWS:]
        linked = asked if now >= linked_at else 0
        inputs = _inputs(now, gains, linked, asked, case.many if crowded else 1)
        while True:  # targets take a policy at once
            version = memory.version
            decision = decide(settings, memory, replace(inputs, acknowledged=version), now)
            memory = decision.memory
            if memory.version == version:
                break
        wanted = decision.draft_replicas or 0
        linked_at = now + START_SECONDS if wanted > asked else linked_at
        asked = wanted
    return 100 * (1 - work / max(on, now)), 100 * drafted / now


def _inputs(
    now: float, gains: list[GainWindow], linked: int, asked: int, running: int
) -> ControlInputs:
    window = Window(
        began=now - INTERVAL,
        ended=now,
        targets=1,
        counters=CounterSample(plain_seconds=1, spent_seconds=1, passes=1000),
        waiting=0,
        running=running,
        kv_usage=0,
    )
    return ControlInputs(
        window=window,
        gains=tuple(gains),
        drafts_desired=asked,
        drafts_actual=asked,
        drafts_ready=linked,
        links_up=linked,
        links_expected=linked,
        sessions=0,
    )


def measure(seeds: int = SEEDS) -> dict[str, dict[str, dict[str, float]]]:
    """Return what the days of each case came to, by group and case, in percent."""
    found: dict[str, dict[str, dict[str, float]]] = {}
    for case in cases():
        under, drafts = np.array([day(case, seed) for seed in range(seeds)]).T
        found.setdefault(case.group, {})[case.name] = {
            "under": float(under.mean()),
            "worst_day": float(under.max()),
            "drafts": float(drafts.mean()),
        }
    return found
