"""A service as it runs here: in the arrangement that its YAML names, or that Auto takes."""

from dataclasses import dataclass, replace

from outrider.cli import processors
from outrider.cli.local import NO_HTTP, LocalWorkers
from outrider.cli.placement.arrangement import Arrangement, arrange
from outrider.cli.placement.choice import Choice
from outrider.cli.placement.choose import Chooser, named_threads
from outrider.cli.ports import WantedPorts
from outrider.cli.trial import ASKED_FOR, Workshop, workers
from outrider.contract.settings import Dtype
from outrider.operator.spec import Placement, SpeculationMode, SpeculativeService

FASTEST = "plain decoding is the fastest on this machine"


@dataclass(frozen=True, slots=True)
class LocalService:
    """A service in one arrangement."""

    service: SpeculativeService
    """As it is arranged."""
    arrangement: Arrangement
    workshop: Workshop
    chooser: Chooser
    choice: Choice | None = None
    """None: the service names its placement."""

    def workers(self, ports: WantedPorts = NO_HTTP) -> LocalWorkers:
        """Its workers, not started yet."""
        return workers(self.service, self.workshop, ports, self.plain_because)

    def other(self, arrangement: Arrangement, dtype: str) -> "LocalService":
        """The same service in another arrangement, its target on a numeric path by name: one that
        is chosen by the number of threads may be another, and would write another text."""
        spec = self.chooser.service.spec
        engine = spec.target.engine
        if dtype in list(Dtype):
            engine = engine.model_copy(update={"dtype": Dtype(dtype)})
        target = spec.target.model_copy(update={"engine": engine})
        changed = spec.model_copy(update={"target": target})
        service = arrange(self.service.model_copy(update={"spec": changed}), arrangement)
        options = replace(self.workshop.options, threads=arrangement.threads)
        return replace(
            self,
            service=service,
            arrangement=arrangement,
            workshop=self.workshop._replace(options=options),
        )

    @property
    def drafts(self) -> bool:
        """Whether it runs with its draft."""
        return self.arrangement.placement is not None

    @property
    def plain_because(self) -> str | None:
        """Why nothing is drafted; None: as the service itself says, or it drafts."""
        own = self.chooser.service.spec
        if self.arrangement.placement is not None:
            return None
        if own.draft is None or own.speculation.mode is SpeculationMode.DISABLED:
            return None
        if self.choice is not None and self.choice.best.arrangement.placement is None:
            return FASTEST
        return ASKED_FOR

    async def learn(self, hand: LocalWorkers) -> None:
        """Remember how the pair did, while its workers still run."""
        if self.choice is not None:
            state = await hand.target_state()
            if state is not None:
                self.chooser.learn(state)


async def place(
    service: SpeculativeService, workshop: Workshop, *, draft: bool = True
) -> LocalService:
    """Arrange the service for this machine where that is left to us; `draft` False: without its
    draft, whatever it says. Raises `Failure`."""
    chooser = Chooser.of(service, workshop)
    if not draft:
        arrangement = plain_arrangement(service, workshop)
        return LocalService(arrange(service, arrangement), arrangement, workshop, chooser)
    if is_open(service) and is_pipelined(service):
        workshop.progress.note("placement Auto takes Separate: the target is cut over stages.")
        service = arrange(service, own_arrangement(service, workshop))
    if not is_open(service):
        arrangement = own_arrangement(service, workshop)
        if arrangement.placement is Placement.SEPARATE and not chooser.machine.separate_gpus:
            workshop.progress.note("target and draft share a GPU; placement: Auto never does that.")
        return LocalService(service, arrangement, workshop, chooser)
    choice = await chooser.choose()
    arrangement = choice.best.arrangement
    return LocalService(arrange(service, arrangement), arrangement, workshop, chooser, choice)


def is_open(service: SpeculativeService) -> bool:
    """True if the service has a draft and leaves its place to the machine."""
    draft = service.spec.draft
    return (
        draft is not None
        and draft.placement is Placement.AUTO
        and draft.replicas != 0
        and service.spec.speculation.mode is not SpeculationMode.DISABLED
    )


def is_pipelined(service: SpeculativeService) -> bool:
    """True if the target is cut over stages: its draft is a process of its own, and nothing is
    known of what it costs in one piece."""
    return service.spec.target.parallelism.pipeline > 1


def own_arrangement(service: SpeculativeService, workshop: Workshop) -> Arrangement:
    """Return the arrangement that the service's own fields come to."""
    spec = service.spec
    threads = workshop.options.threads or spec.target.engine.threads
    off = spec.speculation.mode is SpeculationMode.DISABLED
    if spec.draft is None or spec.draft.replicas == 0 or off:
        return Arrangement(None, threads)
    placement = spec.draft.placement
    if placement is not Placement.COLOCATED:
        placement = Placement.SEPARATE
    return Arrangement(placement, threads, spec.draft.engine.threads)


def plain_arrangement(service: SpeculativeService, workshop: Workshop) -> Arrangement:
    """Return the service without its draft: with the threads that somebody named, or as many as
    leave a processor for each thread of all ranks, stages and replicas: nothing else wants one."""
    target = service.spec.target
    ranks = target.first_replicas * target.parallelism.tensor * target.parallelism.stages
    named = workshop.options.threads or named_threads(target.engine)
    return Arrangement(None, named or max(1, processors.count() // ranks))
