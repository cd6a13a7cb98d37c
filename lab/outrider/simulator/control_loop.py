"""The operator over a cell: scrapes, the real policy, and its decisions done to simulated workers.

As `outrider run` does it to processes (`cli.workers.control_loop`). Leaves deciding to
`operator.control`.
"""

import dataclasses
from dataclasses import dataclass, field

from outrider.contract.settings import PolicySettings
from outrider.operator.control.inputs import ControlInputs, Decision
from outrider.operator.control.memory import LoopMemory, PolicyInForce, new_memory
from outrider.operator.control.policy import decide
from outrider.operator.control.samples import (
    COUNTERS,
    CounterSample,
    DraftSample,
    Sample,
    TargetSample,
)
from outrider.operator.control.scrapes import Scrapes
from outrider.operator.control.settings import ControlSettings
from outrider.simulator.cell import Cell
from outrider.simulator.workers import DraftWorker, TargetWorker


@dataclass(slots=True)
class SimulatedControlLoop:
    """The control loop of one cell."""

    cell: Cell
    settings: ControlSettings
    policy: PolicySettings
    """As the targets have it."""
    memory: LoopMemory = field(init=False)
    sentences: list[tuple[float, str]] = field(default_factory=list)
    """What changed, and when."""
    switches: int = 0
    """Times that drafting went on or off."""
    _scrapes: Scrapes = field(default_factory=Scrapes)

    def __post_init__(self) -> None:
        in_force = PolicyInForce(
            version=0, speculate=self.policy.speculate, max_rows=self.policy.max_rows
        )
        self.memory = new_memory(self.settings, self.cell.clock.now, in_force)

    def begin(self) -> None:
        """Put the first pass on the clock."""
        self.cell.clock.after(self.settings.interval_seconds, self._pass)

    def _pass(self) -> None:
        """Scrape, decide and obey; once an interval."""
        now = self.cell.clock.now
        samples = [_target_sample(target, self.cell, now) for target in self.cell.targets]
        drafts = [draft for draft in self.cell.present_drafts if draft.ready]
        every: list[Sample] = [*samples, *(_draft_sample(draft, now) for draft in drafts)]
        self._scrapes = self._scrapes.add(every, [sample.uid for sample in every], now)
        names = [sample.uid for sample in samples]
        decision = decide(self.settings, self.memory, self._inputs(names, drafts, now), now)
        self._obey(decision, now)
        self.begin()

    def _inputs(self, names: list[str], drafts: list[DraftWorker], now: float) -> ControlInputs:
        stale = float(self.settings.stale_after_seconds)
        present = self.cell.present_drafts
        return ControlInputs(
            window=self._scrapes.window(names, now, stale),
            gains=self._scrapes.gains,
            starting=self._scrapes.starting,
            targets=len(names),
            drafts_desired=sum(not draft.stopping for draft in present),
            drafts_actual=len(present),
            drafts_ready=len(drafts),
            links_up=len(names) * len(drafts),
            links_expected=len(names) * len(drafts),
            sessions=self._scrapes.sessions([_name(draft) for draft in drafts], now, stale),
            acknowledged=self.policy.version,
        )

    def _obey(self, decision: Decision, now: float) -> None:
        self.switches += decision.speculate != self.memory.speculate
        self.memory = decision.memory
        self.sentences += [(now, transition.sentence) for transition in decision.transitions]
        if decision.memory.version != self.policy.version:
            self.policy = dataclasses.replace(
                self.policy,
                version=decision.memory.version,
                speculate=decision.speculate,
                max_rows=decision.max_rows,
            )
            self.cell.push(self.policy)
        if decision.draft_replicas is not None:
            self.cell.scale(decision.draft_replicas)


def _name(draft: DraftWorker) -> str:
    return f"draft-{draft.number}"


def _draft_sample(draft: DraftWorker, now: float) -> DraftSample:
    report = draft.scheduler.report()
    usage = report.counters.kv_slots_used / report.counters.kv_slots
    return DraftSample(uid=_name(draft), at=now, sessions=report.running, kv_usage=usage)


def _target_sample(target: TargetWorker, cell: Cell, now: float) -> TargetSample:
    report = target.scheduler.report()
    counters = report.counters
    return TargetSample(
        uid=f"target-{target.number}",
        at=now,
        counters=CounterSample(**{name: float(getattr(counters, name)) for name in COUNTERS}),
        waiting=report.waiting,
        running=report.running,
        kv_usage=counters.kv_slots_used / counters.kv_slots,
        links_up=target.links,
        links=len(cell.present_drafts),
    )
