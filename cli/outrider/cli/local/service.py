"""A service as it runs here: in the arrangement that its YAML names, or that Auto takes."""

import contextlib
import dataclasses
from collections.abc import AsyncIterator
from dataclasses import dataclass

from outrider.cli.local.workers import NO_HTTP, LocalWorkers
from outrider.cli.machine.gpus import share_gpu
from outrider.cli.machine.ports import WantedPorts
from outrider.cli.machine.processors import share
from outrider.cli.placement.choose import Choice, Chooser
from outrider.cli.service.arrangement import Arrangement, arrange, changed, is_cut, named_threads
from outrider.cli.undecided import Undecided
from outrider.cli.workers.supervisor import StartOptions
from outrider.contract import processors
from outrider.contract.settings import Dtype
from outrider.operator.plan import Plan, plan
from outrider.operator.spec import Placement, SpeculationMode, SpeculativeService

FASTEST = "plain decoding is the fastest on this machine"
ASKED_FOR = "plain decoding, for a comparison or by --no-draft"
"""Why nothing is drafted in a run, trial or comparison without the draft."""


@dataclass(frozen=True, slots=True)
class LocalService:
    """A service in one arrangement."""

    described: SpeculativeService
    """As its YAML has it."""
    arrangement: Arrangement
    start: StartOptions
    choice: Choice | None = None
    """None: the service names its placement."""

    @property
    def plan(self) -> Plan:
        """Its workers, on processors of their own if there are enough."""
        arranged = arrange(self.described, self.arrangement)
        options = dataclasses.replace(self.start.options, threads=self.arrangement.threads)
        planned = share(plan(arranged, options), processors.usable())
        if self.plain_because is None:
            return planned
        control = dataclasses.replace(planned.control, draftless=self.plain_because)
        return dataclasses.replace(planned, control=control)

    def workers(self, ports: WantedPorts = NO_HTTP) -> LocalWorkers:
        """Its workers, not started yet."""
        return LocalWorkers(self.plan, self.start, ports=ports)

    def other(self, arrangement: Arrangement, dtype: str) -> "LocalService":
        """The same service in another arrangement, its target on a numeric path by name: one that
        is chosen by the number of threads may be another, and would write another text."""
        engine = self.described.spec.target.engine
        if dtype in list(Dtype):
            engine = engine.model_copy(update={"dtype": Dtype(dtype)})
        described = changed(self.described, target={"engine": engine})
        return LocalService(described, arrangement, self.start)

    @property
    def drafts(self) -> bool:
        """Whether it runs with its draft."""
        return self.arrangement.placement is not None

    @property
    def plain_because(self) -> str | None:
        """Why nothing is drafted; None: as the service itself says, or it drafts."""
        own = self.described.spec
        if self.drafts or own.draft is None or own.speculation.mode is SpeculationMode.DISABLED:
            return None
        return ASKED_FOR if self.choice is None else FASTEST

    def counterpart(self) -> Arrangement | None:
        """Return what it is compared with: plain decoding at its best or, if it decodes plainly,
        the best with a draft; by rule where nothing was measured. None where there is none."""
        chooser = Chooser.of(self.described, self.start)
        choice = self.choice or (None if is_cut(self.described) else chooser.known())
        if self.drafts:
            plain = plain_arrangement(self.described, self.start)
            return choice.plain.arrangement if choice else plain
        drafted = [one for one in chooser.arrangements if one.placement is not None]
        if choice is not None:
            drafted = [e.arrangement for e in choice.found if e.arrangement.placement is not None]
        if not drafted:
            return None
        return drafted[0] if choice else drafted[-1]


@contextlib.asynccontextmanager
async def placed(
    service: SpeculativeService,
    start: StartOptions,
    ports: WantedPorts = NO_HTTP,
    *,
    draft: bool = True,
    anew: bool = False,
) -> AsyncIterator[tuple[LocalService, LocalWorkers]]:
    """The service with its workers, started; arranged for this machine where that is left to us.

    `draft` False: without its draft, whatever it says. `anew`: measured whatever is remembered.
    Raises `Failure`.
    """
    chooser = Chooser.of(service, start)
    choice = chooser.known() if is_open(service) and draft and not anew else None
    arrangement = choice.best.arrangement if choice else None
    if arrangement is None and (not anew or is_cut(service)):
        arrangement = by_rule(service, start, draft=draft)
    found: list[LocalService] = []

    async def decide(target: Undecided, beside: Undecided | None) -> Plan:
        choice = await chooser.measured(target, beside)
        found.append(LocalService(service, choice.best.arrangement, start, choice))
        return found[0].plan

    if arrangement is None:
        workers = LocalWorkers(chooser.undecided, start, ports=ports, decide=decide)
    else:
        found.append(LocalService(service, arrangement, start, choice))
        workers = found[0].workers(ports)
    async with workers:
        try:
            yield found[0], workers
        finally:
            if found[0].choice and (state := await workers.target_state()) is not None:
                chooser.learn(state)


def by_rule(
    service: SpeculativeService, start: StartOptions, *, draft: bool = True
) -> Arrangement | None:
    """Return the arrangement of a service that does not leave it to the machine, or that is cut
    over ranks or stages and cannot be measured in one piece; None for any other."""
    if not draft:
        return plain_arrangement(service, start)
    own, note = own_arrangement(service, start), start.progress.note
    shared = own.placement not in (None, Placement.COLOCATED) and share_gpu(service)
    if not is_open(service):
        if shared:
            note("target and draft share a GPU; placement: Auto never does that.")
        return own
    if not is_cut(service):
        return None
    if shared:
        own = dataclasses.replace(own, placement=None)
    note(f"placement Auto takes {own.name}: a model is cut over ranks or stages.")
    return own


def is_open(service: SpeculativeService) -> bool:
    """True if the service has a draft and leaves its place to the machine."""
    draft = service.spec.draft
    return (
        draft is not None
        and draft.placement is Placement.AUTO
        and draft.replicas != 0
        and service.spec.speculation.mode is not SpeculationMode.DISABLED
    )


def own_arrangement(service: SpeculativeService, start: StartOptions) -> Arrangement:
    """Return the arrangement that the service's own fields come to."""
    spec = service.spec
    threads = start.options.threads or spec.target.engine.threads
    off = spec.speculation.mode is SpeculationMode.DISABLED
    if spec.draft is None or spec.draft.replicas == 0 or off:
        return Arrangement(None, threads)
    placement = spec.draft.placement
    if placement is Placement.AUTO:
        placement = Placement.SEPARATE
    return Arrangement(placement, threads, spec.draft.engine.threads)


def plain_arrangement(service: SpeculativeService, start: StartOptions) -> Arrangement:
    """Return the service without its draft: with the threads that somebody named, or as many as
    leave a processor for each thread of all ranks, stages and replicas: nothing else wants one."""
    target = service.spec.target
    ranks = target.first_replicas * target.parallelism.tensor * target.parallelism.stages
    named = start.options.threads or named_threads(target.engine)
    return Arrangement(None, named or max(1, processors.count() // ranks))
