"""One way to run a service on one machine: where the draft is, and the threads of both models."""

from dataclasses import dataclass
from typing import TypeVar

from outrider.operator.spec import EngineSpec, Placement, SpeculationMode, SpeculativeService

Engine = TypeVar("Engine", bound=EngineSpec)


@dataclass(frozen=True, slots=True)
class Arrangement:
    """One way to run a service."""

    placement: Placement | None
    """None: without the draft."""
    threads: int
    """Of the target."""
    draft_threads: int = 1
    """Of a draft that is a process of its own."""

    @property
    def name(self) -> str:
        """As tables and recommendations show it."""
        if self.placement is None:
            return f"plain, {threads_in_words(self.threads)}"
        if self.placement is Placement.COLOCATED:
            return f"{self.placement}, {threads_in_words(self.threads)}"
        return f"{self.placement}, {self.threads} + {self.draft_threads} threads"


def threads_in_words(count: int) -> str:
    """Return a number of threads, as tables and progress show it."""
    return f"{count} thread{'s' if count != 1 else ''}"


def arrange(service: SpeculativeService, arrangement: Arrangement) -> SpeculativeService:
    """The service with another placement of its draft, or without one, and other threads."""
    spec, placement = service.spec, arrangement.placement
    target = spec.target.model_copy(
        update={"engine": _engine(spec.target.engine, arrangement.threads)}
    )
    draft = spec.draft
    if draft is not None and placement is not None:
        threads = 1 if placement is Placement.COLOCATED else arrangement.draft_threads
        engine = _engine(draft.engine, threads)
        draft = draft.model_copy(update={"placement": placement, "engine": engine})
    speculation = spec.speculation.model_copy(
        update={"mode": _mode(spec.speculation.mode, placement)}
    )
    changed = {"target": target, "draft": draft, "speculation": speculation}
    return service.model_copy(update={"spec": spec.model_copy(update=changed)})


def one_target(service: SpeculativeService) -> SpeculativeService:
    """The service with a single target."""
    target = service.spec.target.model_copy(update={"replicas": 1})
    return service.model_copy(update={"spec": service.spec.model_copy(update={"target": target})})


def _engine(engine: Engine, threads: int) -> Engine:
    return engine.model_copy(update={"threads": threads})


def _mode(mode: SpeculationMode, placement: Placement | None) -> SpeculationMode:
    if placement is None:
        return SpeculationMode.DISABLED
    return SpeculationMode.ADAPTIVE if mode is SpeculationMode.DISABLED else mode
