"""Choice of the arrangement of a service on this machine, by what was measured or remembered.

Leaves rates to `formula`, measuring to `measure`, and running a service to `local.service`.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from outrider.cli.failures import Failure
from outrider.cli.machine.processors import share
from outrider.cli.machine.run_dir import told_cache
from outrider.cli.placement import formula
from outrider.cli.placement.facts import Facts, facts_file
from outrider.cli.placement.measure import measure
from outrider.cli.service.arrangement import Arrangement, arrange, arrangements, is_cut, one_target
from outrider.cli.undecided import Undecided
from outrider.cli.workers.supervisor import StartOptions
from outrider.contract import processors
from outrider.contract.settings import Role, WorkerSettings
from outrider.contract.state import State
from outrider.operator.plan import Plan, plan
from outrider.operator.spec import Placement, SpeculationMode, SpeculativeService

MARGIN = 1.03
"""What drafting has to gain over plain decoding to be taken: an estimate is no better."""
SAME = 1.01
"""Ratio of two speeds below which they count as the same: the least number of threads is taken."""
COMPARED = (Placement.COLOCATED, Placement.SEPARATE)


@dataclass(frozen=True, slots=True)
class Expected:
    """What one arrangement gives."""

    arrangement: Arrangement
    tokens_per_second: float


@dataclass(frozen=True, slots=True)
class Choice:
    """The arrangement taken, and what it was taken from."""

    best: Expected
    plain: Expected
    """The best without a draft."""
    found: tuple[Expected, ...]
    """The best of each placement, and plain decoding, the fastest first."""
    facts: Facts
    spent: str = ""
    """How long measuring took; empty: it was remembered."""

    def over_plain(self, one: Expected) -> float:
        """Return what an arrangement gives, over plain decoding at its best."""
        return one.tokens_per_second / self.plain.tokens_per_second

    def others(self, *shown: Arrangement) -> list[tuple[Expected, float]]:
        """Return the placements that are not among `shown`, with what they give over plain."""
        placements = {one.placement for one in shown}
        return [
            (one, self.over_plain(one))
            for one in self.found
            if one.arrangement.placement not in placements
        ]

    def tell(self, note: Callable[[str], None]) -> None:
        """Say what is taken, and why, in lines that fit a narrow terminal."""
        plain, best = self.plain.arrangement, self.best
        drafted = [one for one in self.found if one.arrangement.placement is not None]
        rates = ", ".join(
            f"{one.arrangement.placement} {self.over_plain(one):.2f}" for one in drafted
        )
        known = "accepted" if self.facts.first_guesses else "assumed"
        rate = f"{best.tokens_per_second:.0f} tokens/s expected"
        note(f"placement Auto takes {best.arrangement.name}: {rate}.")
        over = f"over {plain.name}: {rates or 'nothing else is possible'}"
        note(f"{over}; {self.facts.acceptance:.0%} {known}.")
        if self.spent:
            note(f"{self.spent}.")


@dataclass(frozen=True, slots=True)
class Chooser:
    """One service on this machine, and the arrangements that it may run in."""

    service: SpeculativeService
    start: StartOptions
    arrangements: tuple[Arrangement, ...]

    @classmethod
    def of(cls, service: SpeculativeService, start: StartOptions) -> "Chooser":
        """Look at the machine and at the service."""
        return cls(service, start, tuple(arrangements(service, start.options.threads)))

    @property
    def separate(self) -> Arrangement | None:
        """`Separate`; None: the machine or the service does not allow it."""
        found = (one for one in self.arrangements if one.placement is Placement.SEPARATE)
        return next(found, None)

    @property
    def undecided(self) -> Plan:
        """The first target and its draft, which wait to be measured: the draft inside, and as a
        process of its own, as far as the arrangements have either."""
        inside = max(
            (one for one in self.arrangements if one.placement is not Placement.SEPARATE),
            key=lambda one: (one.placement is not None, one.threads),
        )
        one, options = one_target(self.service), self.start.options
        planned = plan(arrange(one, inside), options)
        drafts = self.separate and plan(arrange(one, self.separate), options).of(Role.DRAFT)[:1]
        workers = (
            replace(worker, settings=replace(worker.settings, await_arrangement=not is_cut(one)))
            for worker in (*(drafts or ()), *planned.workers)
        )
        return replace(planned, workers=tuple(workers))

    @property
    def file(self) -> Path:
        """Where the facts of this service lie."""
        cache = Path(self.start.options.cache or told_cache())
        return facts_file(cache, *(worker.settings for worker in self.undecided.workers))

    def known(self) -> Choice | None:
        """Decide by what is remembered; None: too little is."""
        facts = Facts.read(self.file)
        enough = {one.threads for one in self.arrangements} <= facts.alone.keys()
        return self.decide(facts) if enough or facts.rates else None

    def timed(self, rates: Mapping[str, float]) -> Choice:
        """Remember the tokens per second of whole arrangements by name, and decide by them.

        One that is not among them did not run, and is not taken. Raises `Failure` where plain
        decoding is none of them.
        """
        if not any(one.placement is None and one.name in rates for one in self.arrangements):
            raise Failure("plain decoding of this service does not run here.")
        facts = replace(Facts.read(self.file), rates=rates)
        facts.write(self.file)
        return self.decide(facts)

    async def measured(self, target: Undecided, draft: Undecided | None) -> Choice:
        """Measure and decide; remember it unless the draft could not be used, which may change.

        Raises as `measure` does.
        """
        threads = sorted({one.threads for one in self.arrangements})
        two = None if self.separate is None else self._two(self.separate)
        found, spent = await measure(target, draft, threads, two, self.start.progress)
        known = Facts.read(self.file)
        facts = found.guessed(known.first_guesses, known.first_hits)
        choice = self.decide(facts)
        if len(choice.found) == len({one.placement for one in self.arrangements}):
            facts.write(self.file)
        return replace(choice, spent=spent)

    def decide(self, facts: Facts) -> Choice:
        """Decide by the rates of whole arrangements, where they were timed, else by the formula."""
        rates = (
            Expected(one, facts.rates.get(one.name, 0.0) if facts.rates else _rate(one, facts))
            for one in self.arrangements
        )
        possible = [one for one in rates if one.tokens_per_second > 0]
        found = sorted(_best_of_each(possible), key=lambda one: -one.tokens_per_second)
        plain = next(one for one in found if one.arrangement.placement is None)
        best = found[0]
        keeps = self.service.spec.speculation.mode is SpeculationMode.STATIC and len(found) > 1
        if keeps:
            best = next(one for one in found if one is not plain)
        elif best.tokens_per_second <= MARGIN * plain.tokens_per_second:
            best = plain
        return Choice(best, plain, tuple(found), facts)

    def learn(self, state: State) -> None:
        """Remember how the pair did in a run. The next start measures again where passes now take
        another time than was measured."""
        row = state.step_seconds.get(1, 0.0)
        facts = Facts.read(self.file).after_run(state.counters, state.threads, row)
        facts.write(self.file)

    def _two(self, separate: Arrangement) -> tuple[WorkerSettings, WorkerSettings]:
        """Return the settings of target and draft as `Separate`, each on its processors."""
        planned = plan(arrange(self.service, separate), self.start.options)
        shared = share(planned, processors.usable())
        return shared.of(Role.TARGET)[0].settings, shared.of(Role.DRAFT)[0].settings


def _rate(one: Arrangement, facts: Facts) -> float:
    """Return the tokens per second of an arrangement; 0: it cannot run, as far as is known."""
    alone = facts.alone[one.threads]
    if one.placement is None:
        return formula.plain_rate(alone.target)
    known = alone if one.placement is Placement.COLOCATED else facts.beside
    if known is None or not known.draft:
        return 0.0
    rounds = formula.Rounds(known.target, known.draft, facts.acceptance)
    if one.placement is Placement.COLOCATED:
        return formula.colocated_rate(rounds)
    return formula.parallel_rate(alone.target, rounds)


def _best_of_each(rates: list[Expected]) -> Iterator[Expected]:
    """Yield the best of each placement; of about equal ones that of fewest threads, which leaves
    processors to the rest of the machine."""
    for placement in (None, *COMPARED):
        of_it = [one for one in rates if one.arrangement.placement is placement]
        enough = max((one.tokens_per_second for one in of_it), default=0.0) / SAME
        good = [one for one in of_it if one.tokens_per_second >= enough]
        yield from sorted(good, key=lambda one: one.arrangement.threads)[:1]
