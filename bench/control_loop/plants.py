"""Plants that try to make the control loop go wrong, for `control_loop` and the loop's properties.

A plant says what a service gains at any moment, and what the loop gets to see of it: late, in part,
or not at all. Unlike `service` it has no requests: gain and load are given, so that they
can be as nasty as one likes. Arithmetic with a fixed seed; it measures nothing.
"""

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
"""Of one verify pass; it only sets how many passes there are to judge by."""
TOKENS = 2.0
"""Committed tokens of a pass while drafting is on."""
DRAFTS = 2
NOTHING = CounterSample()


@dataclass(frozen=True, slots=True, kw_only=True)
class Plant:
    """A service, and what the loop sees of it; times in seconds since the start."""

    gain: Callable[[float, int], float] = lambda now, rows: 130.0
    """Gain of drafting, in percent, at a time and with a ceiling of rows."""
    running: Callable[[float], float] = lambda now: 8.0
    """Requests that run at each target; 0: none, and nothing is decoded."""
    waiting: float = 0.0
    """Requests that wait at each target, while there is work."""
    targets: int = 2
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
    """Deviation of the gain of a window."""
    share: float = 0.0
    """Hardware of all drafts, by that of the targets."""


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
    decision: Decision | None = None
    counters: CounterSample = field(default_factory=CounterSample)
    history: list[CounterSample] = field(default_factory=list)
    scrapes: Scrapes = field(default_factory=Scrapes)
    outcome: Outcome = field(default_factory=Outcome)

    @property
    def linked(self) -> int:
        """Drafts that are linked."""
        return self.asked if self.now >= self.linked_at else 0

    def window(self) -> None:
        """Let one interval pass, then a pass of the loop."""
        seconds = float(self.settings.interval_seconds)
        self.now += seconds
        self._work(seconds)
        self._scrape()
        number = round(self.now / seconds)
        if self.plant.restart_every and number % self.plant.restart_every == 0:
            self.memory, self.scrapes = loads(self.memory.dumps()), Scrapes()
        inputs = self._inputs()
        decision = decide(self.settings, self.memory, inputs, self.now)
        self._note(decision, seconds)
        self._obey(decision)

    def _work(self, seconds: float) -> None:
        memory = self.memory
        drafts = memory.speculate and self.linked > 0
        out = self.outcome
        out.on_seconds += seconds * memory.speculate
        if self.plant.running(self.now) > 0:
            percent = self.plant.gain(self.now, memory.max_rows) if drafts else 100.0
            luck = float(self.noise.normal(1, self.plant.noise)) if drafts else 1.0
            out.busy_seconds += seconds
            out.work_seconds += seconds * percent / 100
            passes = self.plant.running(self.now) * seconds / PASS_SECONDS
            self.counters += CounterSample(
                plain_seconds=seconds * luck * percent / 100,
                spent_seconds=seconds,
                passes=passes,
                drafted_passes=passes if drafts else 0.0,
                tokens=passes * (TOKENS if drafts else 1.0),
            )
        self.history.append(self.counters)

    def _scrape(self) -> None:
        shown = self.history[max(0, len(self.history) - 1 - self.plant.late_windows)]
        heard = self.plant.targets - self.plant.silent
        names = [f"target{n}" for n in range(self.plant.targets)]
        answers: list[Sample] = [
            self._sample(name, shown)
            for name in names[:heard]
            if self.noise.random() >= self.plant.lost
        ]
        self.scrapes = self.scrapes.add(answers, names, self.now)

    def _sample(self, name: str, counters: CounterSample) -> TargetSample:
        running = self.plant.running(self.now)
        return TargetSample(
            uid=name,
            at=self.now,
            counters=counters,
            waiting=self.plant.waiting if running else 0.0,
            running=running,
            kv_usage=0.9 if running else 0.0,
            drafting="on",
            links_up=self.linked,
            links=self.asked,
        )

    def _inputs(self) -> ControlInputs:
        names = [f"target{n}" for n in range(self.plant.targets)]
        stale = self.settings.stale_after_seconds
        version = self.memory.version
        return ControlInputs(
            window=self.scrapes.window(names, self.now, stale),
            starting=self.scrapes.starting,
            targets=self.plant.targets,
            drafts_desired=self.asked,
            drafts_actual=self.asked,
            drafts_ready=self.linked,
            links_up=self.linked * self.plant.targets,
            links_expected=self.asked * self.plant.targets,
            sessions=0,
            acknowledged=version,
            followed_by_all=0 if self.plant.silent else version,
        )

    def _note(self, decision: Decision, seconds: float) -> None:
        out, before = self.outcome, self.memory
        out.seconds = self.now
        out.draft_seconds += seconds * self.asked
        if decision.memory.version != before.version:
            out.policies.append(self.now)
        if decision.speculate != before.speculate:
            out.switches.append(self.now)
        woken = [t for t in decision.transitions if t.change is PhaseChange.DRAFTS_WAKING]
        out.probes += [self.now] * (len(woken) if decision.memory.for_probe else 0)

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


def _bursts(now: float) -> float:
    return 16.0 if now % 1800 < 120 else 0.0


PLANTS: Mapping[str, Plant] = {
    "idle": Plant(running=lambda now: 0.0),
    "two_ceilings": Plant(gain=lambda now, rows: 103.0 if rows > 8 else 120.0),
    "long_queue": Plant(gain=lambda now, rows: 112.0, waiting=6.0),
    "never_pays": Plant(gain=lambda now, rows: 90.0),
    "never_pays_2_gpus_by_6": Plant(
        gain=lambda now, rows: 105.0, share=1 / 3, start_seconds=lambda now: 300.0
    ),
    "one_silent_target": Plant(gain=lambda now, rows: 90.0, targets=3, silent=1),
    "late_and_lost_metrics": Plant(
        gain=lambda now, rows: 90.0 if now % 14_400 < 7_200 else 140.0, lost=0.3, late_windows=4
    ),
    "restarts": Plant(gain=lambda now, rows: 90.0, restart_every=20),
    "bursts": Plant(running=_bursts),
    "slow_starts": Plant(
        gain=lambda now, rows: 90.0 if now % 14_400 < 7_200 else 140.0,
        start_seconds=lambda now: 900.0,
    ),
    "pays_only_when_probed": Plant(
        gain=lambda now, rows: 130.0 if now % 600 < 300 else 85.0,
    ),
}
"""The nine points of the review, and worse."""
