"""Plants that try to make the control loop go wrong, for `control_loop` and the loop's properties.

A plant says what a service gains at any moment, and what the loop gets to see of it: late, in part,
or not at all. Unlike `service` it has no requests: gain and load are given, so that they
can be as nasty as one likes. Arithmetic with a fixed seed; it measures nothing.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from outrider.operator.control.inputs import ControlInputs, Decision
from outrider.operator.control.memory import LoopMemory, PolicyInForce, loads, new_memory
from outrider.operator.control.policy import decide
from outrider.operator.control.reasons import PhaseChange
from outrider.operator.control.samples import CounterSample, Sample, TargetSample
from outrider.operator.control.scrapes import Scrapes
from outrider.operator.control.settings import ControlSettings, ScalingRule

PASS_SECONDS = 0.05
"""Seconds of one verify pass; they only set how many passes there are."""
DRAFTS = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Plant:
    """A service, and what the loop sees of it; times in seconds since the start."""

    gain: Callable[[float], float] = lambda now: 130.0
    """Gain of drafting, in percent, at a time."""
    running: Callable[[float], float] = lambda now: 8.0
    """Requests that run at each target; 0: none, and nothing is decoded."""
    narrow: float = 0.0
    """What a lowered ceiling of rows adds to the gain, in percent."""
    targets: int = 2
    declining: int = 0
    """Targets whose own switch keeps drafting off: they decode plainly."""
    silent: int = 0
    """Targets that never answer."""
    start_seconds: Callable[[float], float] = lambda now: 60.0
    """Time of a draft that is started to link."""
    lost: float = 0.0
    """Chance that a target does not answer a scrape."""
    late_windows: int = 0
    """Windows by which metrics are late."""
    restart_every: int = 0
    """Passes between two restarts of the operator; 0: it is never restarted."""
    noise: float = 0.01
    """Deviation of the gain that a target shows in a window."""
    share: float = 0.0
    """Hardware of all drafts, by that of the targets."""

    def worth(self, now: float, lowered: bool) -> float:
        """Return seconds of plain decoding by seconds of a target that drafts."""
        return (self.gain(now) + self.narrow * lowered) / 100


@dataclass(slots=True)
class Outcome:
    """What a plant came to."""

    seconds: float = 0.0
    draft_seconds: float = 0.0
    """Seconds of all drafts that there were, started or not."""
    work_seconds: float = 0.0
    """Seconds of plain decoding that the time with work was worth, of one target."""
    busy_seconds: float = 0.0
    """Seconds with work, of one target."""
    policies: list[float] = field(default_factory=list)
    """When the policy of the targets changed."""
    probes: list[float] = field(default_factory=list)
    """When probes began to wake drafts."""
    switches: list[float] = field(default_factory=list)
    """When drafting went on or off."""
    on_seconds: float = 0.0
    drafts: int = 0
    """Drafts at the end."""

    @property
    def policies_an_hour(self) -> int:
        """Most policies in any hour."""
        times = self.policies
        return max((sum(at <= t < at + 3600 for t in times) for at in times), default=0)

    def loss(self, share: float) -> float:
        """Return what the service lost against drafting that is always off, by its time: work not
        done, and hardware of drafts; less than 0: it gained."""
        hardware = share * self.draft_seconds / DRAFTS
        return (self.busy_seconds - self.work_seconds + hardware) / self.seconds


@dataclass(slots=True)
class Life:
    """State of a plant under control."""

    plant: Plant
    settings: ControlSettings
    noise: np.random.Generator
    memory: LoopMemory
    now: float = 0.0
    asked: int = DRAFTS
    linked_at: float = 0.0
    """When the drafts that were started last are linked."""
    counters: tuple[CounterSample, ...] = ()
    """Counters by target."""
    history: list[tuple[CounterSample, ...]] = field(default_factory=list)
    scrapes: Scrapes = field(default_factory=Scrapes)
    outcome: Outcome = field(default_factory=Outcome)

    @property
    def linked(self) -> int:
        """Drafts that are linked."""
        return self.asked if self.now >= self.linked_at else 0

    @property
    def names(self) -> list[str]:
        """Names of the targets."""
        return [f"target{n}" for n in range(self.plant.targets)]

    def window(self) -> None:
        """Let one interval pass, then a pass of the loop."""
        seconds = float(self.settings.interval_seconds)
        self.now += seconds
        self._work(seconds)
        self._scrape()
        number = round(self.now / seconds)
        if self.plant.restart_every and number % self.plant.restart_every == 0:
            self.memory, self.scrapes = loads(self.memory.dumps()), Scrapes()
        decision = decide(self.settings, self.memory, self._inputs(), self.now)
        self._note(decision, seconds)
        self._obey(decision)

    def _work(self, seconds: float) -> None:
        plant, memory, out = self.plant, self.memory, self.outcome
        drafts = memory.speculate and self.linked > 0
        out.on_seconds += seconds * memory.speculate
        passes = plant.running(self.now) * seconds / PASS_SECONDS
        done = [CounterSample()] * plant.targets
        if passes > 0:
            out.busy_seconds += seconds
            worth = plant.worth(self.now, memory.max_rows < self.settings.max_rows)
            for n in range(plant.targets):
                on = drafts and n >= plant.declining
                out.work_seconds += seconds * (worth if on else 1.0) / plant.targets
                gain = worth * self.noise.normal(1, plant.noise) if on else 1.0
                done[n] = CounterSample(
                    plain_seconds=seconds * float(gain),
                    spent_seconds=seconds,
                    passes=passes,
                    first_guesses=passes * on,
                )
        before = self.counters or [CounterSample()] * plant.targets
        self.counters = tuple(a + b for a, b in zip(before, done, strict=True))
        self.history.append(self.counters)

    def _scrape(self) -> None:
        shown = self.history[max(0, len(self.history) - 1 - self.plant.late_windows)]
        heard = self.plant.targets - self.plant.silent
        answers: list[Sample] = [
            self._sample(name, counters)
            for name, counters in zip(self.names[:heard], shown[:heard], strict=True)
            if self.noise.random() >= self.plant.lost
        ]
        self.scrapes = self.scrapes.add(answers, self.names, self.now)

    def _sample(self, name: str, counters: CounterSample) -> TargetSample:
        running = self.plant.running(self.now)
        return TargetSample(
            uid=name,
            at=self.now,
            counters=counters,
            waiting=0.0,
            running=running,
            kv_usage=0.9 if running else 0.0,
            links_up=self.linked,
            links=self.asked,
        )

    def _inputs(self) -> ControlInputs:
        targets, version = self.plant.targets, self.memory.version
        return ControlInputs(
            window=self.scrapes.window(self.names, self.now, self.settings.stale_after_seconds),
            gains=self.scrapes.gains,
            starting=self.scrapes.starting,
            targets=targets,
            drafts_desired=self.asked,
            drafts_actual=self.asked,
            drafts_ready=self.linked,
            links_up=self.linked * targets,
            links_expected=self.asked * targets,
            sessions=0,
            acknowledged=version,
            followed_by_all=0 if self.plant.silent else version,
        )

    def _note(self, decision: Decision, seconds: float) -> None:
        out, before, now = self.outcome, self.memory, self.now
        out.seconds = now
        out.draft_seconds += seconds * self.asked
        if decision.memory.version != before.version:
            out.policies.append(now)
        if decision.speculate != before.speculate:
            out.switches.append(now)
        woken = [t for t in decision.transitions if t.change is PhaseChange.DRAFTS_WAKING]
        out.probes += [now] * (len(woken) if decision.memory.for_probe else 0)

    def _obey(self, decision: Decision) -> None:
        wanted = decision.draft_replicas or 0
        if wanted > self.asked:
            self.linked_at = self.now + self.plant.start_seconds(self.now)
        self.memory, self.asked = decision.memory, wanted
        self.outcome.drafts = wanted


def control(plant: Plant, settings: ControlSettings | None = None) -> ControlSettings:
    """Return settings with the hardware of a plant, in whole GPUs."""
    chosen = settings or ControlSettings()
    gpus = round(100 * plant.share * plant.targets / DRAFTS)
    draft: ScalingRule = replace(chosen.draft, draft_gpus=gpus, target_gpus=100 if gpus else 0)
    return replace(chosen, draft=draft)


def live(
    plant: Plant, seconds: float, settings: ControlSettings | None = None, seed: int = 7
) -> Outcome:
    """Run a plant that begins with drafting on and two drafts linked."""
    chosen = control(plant, settings)
    first = PolicyInForce(version=1, speculate=True, max_rows=chosen.max_rows)
    life = Life(plant, chosen, np.random.default_rng(seed), new_memory(chosen, 0.0, first))
    while life.now < seconds:
        life.window()
    return life.outcome


def turns(seconds: float, *values: float) -> Callable[[float], float]:
    """Return a function that goes through values for ever, each for so many seconds."""
    return lambda now: values[int(now // seconds) % len(values)]


def _noon(now: float) -> float:
    """Return 0 at night and 1 at noon."""
    return ((1 - math.cos(2 * math.pi * now / 86_400)) / 2) ** 2


PLANTS: Mapping[str, Plant] = {
    "idle": Plant(running=lambda now: 0.0),
    "never_pays": Plant(gain=lambda now: 90.0),
    "never_pays_2_gpus_by_6": Plant(
        gain=lambda now: 105.0, share=1 / 3, start_seconds=lambda now: 300.0
    ),
    "pays_with_few_rows": Plant(gain=lambda now: 95.0, narrow=25.0),
    "two_of_four_decline": Plant(gain=lambda now: 170.0, targets=4, declining=2),
    "one_silent_target": Plant(gain=lambda now: 90.0, targets=3, silent=1),
    "late_and_lost_metrics": Plant(gain=turns(7200, 90.0, 140.0), lost=0.3, late_windows=4),
    "restarts": Plant(gain=lambda now: 90.0, restart_every=20),
    "night_and_noon": Plant(
        gain=lambda now: 150.0 - 70 * _noon(now), running=lambda now: 1 + 30 * _noon(now)
    ),
    "bursts": Plant(running=lambda now: 16.0 if now % 1800 < 120 else 0.0),
    "slow_starts": Plant(gain=turns(7200, 90.0, 140.0), start_seconds=lambda now: 900.0),
}
"""Points of the reviews, and worse."""
