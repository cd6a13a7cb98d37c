"""Choice of the arrangement of a service on this machine: measured, tried, remembered.

    step costs (measured once) → expected rates → trial of the best → … → the best that was tried

Trials are few: each placement is tried once, and only if it may be the fastest. Leaves the rates to
`estimate`, what outlives a run to `facts`, and running a service to `trial`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from outrider.cli.compilation import beside, compile_kernels
from outrider.cli.failures import Failure
from outrider.cli.placement import estimate
from outrider.cli.placement.arrangement import Arrangement
from outrider.cli.placement.choice import Choice
from outrider.cli.placement.estimate import Expected, Machine, StepCosts
from outrider.cli.placement.facts import Facts, facts_file
from outrider.cli.placement.machine import machine_for
from outrider.cli.preparation import prepare, records
from outrider.cli.rules import broken_rules
from outrider.cli.run_dir import RunFolder, told_cache
from outrider.cli.trial import Workshop, does_not_run, try_out
from outrider.client.errors import ClientError
from outrider.client.state import State
from outrider.contract.settings import Role, WorkerSettings
from outrider.operator.plan import plan
from outrider.operator.spec import (
    EngineSpec,
    Placement,
    SpeculationMode,
    SpeculativeService,
)

NAME = "placement"
"""Of this work in progress shown and in logs."""
TRIED_AGAIN = "the next start tries it again."
"""Of an arrangement whose trial told nothing."""


@dataclass(frozen=True, slots=True)
class Chooser:
    """One service on this machine, and how to run it."""

    service: SpeculativeService
    workshop: Workshop
    machine: Machine
    allowed: frozenset[Placement]
    """Placements that the service's other settings allow."""

    @classmethod
    def of(cls, service: SpeculativeService, workshop: Workshop) -> "Chooser":
        """Look at the machine and at the service."""
        allowed = (p for p in estimate.COMPARED if _fits(service, p))
        return cls(service, workshop, machine_for(service), frozenset(allowed))

    @property
    def settings(self) -> WorkerSettings:
        """The target's settings with the draft's model inside: what preparing both takes."""
        return settings_of_both(self.service, self.workshop)

    @property
    def measurements(self) -> tuple[WorkerSettings, ...]:
        """What step costs are measured with: both models at once where they run on one device,
        else each with its own settings."""
        target, drafts = self.settings, self._drafts()
        if all(draft.device is target.device and draft.tensor_parallel == 1 for draft in drafts):
            return (target,)
        return (replace(target, colocated=None), *drafts)

    def _drafts(self) -> tuple[WorkerSettings, ...]:
        """The settings of a draft that is a process of its own, if there is one."""
        workers = plan(self.service, self.workshop.options).of(Role.DRAFT)
        return tuple(worker.settings for worker in workers[:1])

    @property
    def file(self) -> Path:
        """Where the facts of this service lie."""
        cache = Path(self.workshop.options.cache or told_cache())
        return facts_file(cache, self.settings, *self._drafts())

    async def choose(self) -> Choice:
        """Return the fastest arrangement; measures and tries what is not known yet.

        Raises `Failure` if models cannot be prepared or measured.
        """
        facts, chooser = await self._with_costs(Facts.read(self.file)), self
        while True:
            choice = chooser.decide(facts)
            placement = choice.best.arrangement.placement
            if placement is None or choice.best.measured:
                return choice
            learnt = await self._after_trial(facts, choice, placement)
            if learnt is None:
                chooser = replace(chooser, allowed=chooser.allowed - {placement})
            facts = learnt or facts

    async def look(self) -> Choice:
        """Return what is expected without any trial, for a service that names its placement."""
        return self.decide(await self._with_costs(Facts.read(self.file)))

    def measured(self, costs: Mapping[str, Any]) -> Choice:
        """Remember step costs that were measured in full, and decide by them."""
        kept = {
            str(role): {
                threads: {"rows": facts["rows"]} for threads, facts in costs.get(role, {}).items()
            }
            for role in Role
        }
        facts = Facts.read(self.file).with_costs(kept)
        facts.write(self.file)
        return self.decide(facts)

    def timed(self, rates: Mapping[str, float]) -> Choice:
        """Remember the tokens per second of whole arrangements by name, and decide by them.

        A placement that is not among them did not run, and is not taken.
        """
        facts = Facts.read(self.file)
        costs = self._possible(StepCosts.of(facts.costs or {}))
        found = self._expected(costs, facts)
        plain = estimate.best_plain(found)
        base, ran = rates.get(plain.arrangement.name, 0.0), set()
        for one in found:
            placement, rate = one.arrangement.placement, rates.get(one.arrangement.name)
            if placement is None or rate is None:
                continue
            ran.add(placement)
            if base > 0:
                over_plain = one.tokens_per_second / plain.tokens_per_second
                facts = facts.with_trial(placement, rate / base / over_plain)
        facts.write(self.file)
        return replace(self, allowed=self.allowed & ran).decide(facts)

    def learn(self, state: State) -> None:
        """Remember how the pair did in a run, and what its target found a row to cost; say so where
        that outdates what was measured and tried."""
        known = Facts.read(self.file).ran(state.counters)
        row = state.step_seconds.get(1, 0.0)
        facts = known.with_row(state.threads, row) if row > 0 else known
        if known.costs is not None and facts.costs is None:
            before = known.row_seconds[str(state.threads)]
            self.workshop.progress.note(outdated(before, row))
        facts.write(self.file)

    def decide(self, facts: Facts) -> Choice:
        """Decide by what is known."""
        costs = self._possible(StepCosts.of(facts.costs or {}))
        rates = by_trials(self._expected(costs, facts), facts.over_expected)
        found = estimate.each_placement(rates)
        static = self.service.spec.speculation.mode is SpeculationMode.STATIC
        best = estimate.best(found, keeps_draft=static)
        return Choice(best, estimate.best_plain(found), tuple(found), costs, facts)

    def _expected(self, costs: StepCosts, facts: Facts) -> list[Expected]:
        return estimate.expected(costs, self.machine, self.allowed, facts.acceptance)

    async def _with_costs(self, facts: Facts) -> Facts:
        try:
            StepCosts.of(facts.costs or {})
        except (KeyError, TypeError, ValueError, AttributeError):
            facts = facts.with_costs(await self._measure())
            facts.write(self.file)
        return facts

    async def _measure(self) -> Mapping[str, Any]:
        command, progress = self.workshop.command, self.workshop.progress
        run = RunFolder(self.workshop.folder)
        measured: dict[str, Any] = {}
        try:
            async with beside(compile_kernels([self.settings], command, run, progress)):
                await prepare("models", self.settings, command, run, progress)
            for settings in self.measurements:
                measured |= await self._costs(settings, run)
        finally:
            progress.finish(NAME)
        run.remove()
        try:
            StepCosts.of(measured)
        except (KeyError, TypeError, ValueError) as error:
            raise Failure(f"measuring step costs gave nothing to go by: {error!r}") from error
        return measured

    async def _costs(self, settings: WorkerSettings, run: RunFolder) -> dict[str, Any]:
        """Return what a worker measures with these settings, by role and threads."""
        measured = {}
        async for record in records("costs", NAME, settings, self.workshop.command, run):
            if "stage" in record:
                stage = (record["stage"], record["done"], record["total"])
                self.workshop.progress.stage(NAME, *stage)
            else:
                measured = record
        return measured

    def _possible(self, costs: StepCosts) -> StepCosts:
        """Leave the numbers of threads that the service allows: its own, where it names one."""
        spec, options = self.service.spec, self.workshop.options
        target = options.threads or named_threads(spec.target.engine)
        draft = named_threads(spec.draft.engine) if spec.draft is not None else None
        return StepCosts(_only(costs.target, target), _only(costs.draft, draft))

    async def _after_trial(
        self, facts: Facts, choice: Choice, placement: Placement
    ) -> Facts | None:
        """Run the best arrangement for a moment, and remember how it did.

        None: it did not run, or without its draft. Nothing is remembered of that: the next start
        tries again.
        """
        one = choice.best.arrangement
        progress = self.workshop.progress
        progress.stage(NAME, f"trying {one.name}")
        try:
            async with self.workshop.running(self.service, one) as client:
                result = await try_out(client)
        except (Failure, ClientError) as error:
            progress.note(f"{does_not_run(one, error)}; {TRIED_AGAIN}")
            return None
        finally:
            progress.finish(NAME)
        if result.counters.first_guesses == 0:
            progress.note(f"{one.name} answered without its draft: not counted; {TRIED_AGAIN}")
            return None
        facts = facts.ran(result.counters)
        found = self._expected(choice.costs, facts)
        rates = {e.arrangement: e.tokens_per_second for e in found}
        over_plain = rates[one] / rates[Arrangement(None, one.threads)]
        facts = facts.with_trial(placement, result.over_plain / over_plain)
        facts.write(self.file)
        return facts


def by_trials(rates: list[Expected], over_expected: Mapping[str, float]) -> list[Expected]:
    """Return rates by what trials of their placement gave; those that were tried are measured."""
    found = []
    for one in rates:
        ratio = over_expected.get(str(one.arrangement.placement))
        if ratio is not None:
            one = Expected(one.arrangement, ratio * one.tokens_per_second, measured=True)
        found.append(one)
    return found


def outdated(before: float, now: float) -> str:
    """Say that a pass of one row takes other seconds than in the first run, and what follows."""
    return (
        f"a row takes {1e3 * now:.2f} ms, and took {1e3 * before:.2f} ms in the first run: the "
        "machine was busy in one of them, or is another. The next start measures and tries "
        "arrangements again; `outrider profile` does so at length."
    )


def settings_of_both(service: SpeculativeService, workshop: Workshop) -> WorkerSettings:
    """The target's settings with the draft's model inside, so that one process measures both."""
    planned = plan(service, workshop.options)
    target = planned.of(Role.TARGET)[0].settings
    drafts = planned.of(Role.DRAFT)
    return replace(target, colocated=drafts[0].settings.model) if drafts else target


def _fits(service: SpeculativeService, placement: Placement) -> bool:
    """True if no other setting of the service speaks against a placement."""
    draft = service.spec.draft
    if draft is None or draft.replicas == 0:
        return False
    moved = draft.model_copy(update={"placement": placement})
    spec = service.spec.model_copy(update={"draft": moved})
    return not any(broken_rules(service.model_copy(update={"spec": spec})))


def named_threads(engine: EngineSpec) -> int | None:
    """Return the threads that a description names; None: it leaves them open."""
    return engine.threads if "threads" in engine.model_fields_set else None


def _only(
    curves: Mapping[int, estimate.Curve], threads: int | None
) -> Mapping[int, estimate.Curve]:
    """Return the curve of so many threads alone, or of the nearest that was measured."""
    if threads is None or not curves:
        return curves
    nearest = min(curves, key=lambda measured: abs(measured - threads))
    return {threads: curves[nearest]}
