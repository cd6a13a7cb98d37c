"""Ways to run a service on one machine: where the draft is, and the threads of both models."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from outrider.cli.machine.gpus import gpus_of, share_gpu
from outrider.cli.service.rules import broken_rules
from outrider.contract import processors
from outrider.operator.spec import (
    Draft,
    EngineSpec,
    Placement,
    SpeculationMode,
    SpeculativeService,
)

Engine = TypeVar("Engine", bound=EngineSpec)
OF_PODS = ("image", "resources", "pod_template", "cache", "update")
"""Fields of a draft that say nothing of processes."""


@dataclass(frozen=True, slots=True)
class Arrangement:
    """One way to run a service."""

    placement: Placement | None
    """None: without the draft."""
    threads: int
    """Threads of the target."""
    draft_threads: int = 1
    """Threads of a draft that is a process of its own."""

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
    """The service with another placement of its draft, or without one, and other threads.

    Without the draft that it has, it decodes plainly; one that has none keeps its other sources.
    """
    spec, placement = service.spec, arrangement.placement
    parts: dict[str, Mapping[str, Any]] = {
        "target": {"engine": _engine(spec.target.engine, arrangement.threads)},
    }
    if spec.draft is not None:
        parts["speculation"] = {"mode": _mode(spec.speculation.mode, placement)}
    if spec.draft is not None and placement is not None:
        threads = 1 if placement is Placement.COLOCATED else arrangement.draft_threads
        parts["draft"] = {"placement": placement, "engine": _engine(spec.draft.engine, threads)}
    return changed(service, **parts)


def one_target(service: SpeculativeService) -> SpeculativeService:
    """The service with a single target."""
    return changed(service, target={"replicas": 1})


def changed(service: SpeculativeService, **parts: Mapping[str, Any]) -> SpeculativeService:
    """The service with other fields of some parts of its spec, by the parts' names."""
    spec = service.spec
    copies = {name: getattr(spec, name).model_copy(update=new) for name, new in parts.items()}
    return service.model_copy(update={"spec": spec.model_copy(update=copies)})


def _engine(engine: Engine, threads: int) -> Engine:
    return engine.model_copy(update={"threads": threads})


def _mode(mode: SpeculationMode, placement: Placement | None) -> SpeculationMode:
    if placement is None:
        return SpeculationMode.DISABLED
    return SpeculationMode.ADAPTIVE if mode is SpeculationMode.DISABLED else mode


def arrangements(service: SpeculativeService, asked: int | None) -> Iterator[Arrangement]:
    """Yield the arrangements that machine and service allow; `asked`: threads of the target."""
    spec, draft, cut = service.spec, service.spec.draft, service.spec.target.parallelism
    here = max(1, processors.count() // (spec.target.first_replicas * cut.tensor * cut.stages))
    on_gpu = gpus_of(spec.target) > 0
    drafts = 1 if draft is None else draft.engine.threads
    beside = 0 if draft is None or gpus_of(draft) else drafts
    engine = spec.target.engine
    named = asked or named_threads(engine) or (engine.threads if on_gpu else None)
    counts = {here // 2, here - beside, here} if named is None else {named}
    for threads in sorted(n for n in counts if n > 0):
        yield Arrangement(None, threads)
        if _fits(service, Placement.COLOCATED):
            yield Arrangement(Placement.COLOCATED, threads)
    threads = named or max(1, here - beside)
    busy = beside + (1 if on_gpu else threads)  # one that feeds the GPU
    if busy <= here and _fits(service, Placement.SEPARATE) and not share_gpu(service):
        yield Arrangement(Placement.SEPARATE, threads, drafts)


def is_cut(service: SpeculativeService) -> bool:
    """True if one of the models is cut over ranks or stages: it cannot be measured in one piece."""
    target, draft = service.spec.target.parallelism, service.spec.draft
    ranks = 1 if draft is None else draft.parallelism.tensor
    return target.stages * target.tensor * ranks > 1


def named_threads(engine: EngineSpec) -> int | None:
    """Return the threads that a description names; None: it leaves them open."""
    return engine.threads if "threads" in engine.model_fields_set else None


def _fits(service: SpeculativeService, placement: Placement) -> bool:
    """True if no other setting of the service that matters here speaks against a placement."""
    draft = service.spec.draft
    if draft is None or draft.replicas == 0:
        return False
    without_pods = {
        name: Draft.model_fields[name].get_default(call_default_factory=True) for name in OF_PODS
    }
    moved = changed(service, draft=without_pods | {"placement": placement})
    return not any(broken_rules(moved))
