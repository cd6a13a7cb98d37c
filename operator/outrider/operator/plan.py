"""Which workers a service needs, what each is told, and in which order they start.

Pure. A hand (`outrider run`, or the operator) gives each worker an address, links targets to their
drafts and pushes later changes of the policy; nothing here knows of processes or Kubernetes.
"""

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any

from outrider.contract.settings import (
    MAX_RUNNING,
    Device,
    Dtype,
    ModelSettings,
    PolicySettings,
    Role,
    WorkerSettings,
)
from outrider.operator.control.settings import ControlSettings
from outrider.operator.limits import control_settings
from outrider.operator.naming import draft_name, target_name
from outrider.operator.spec import (
    Draft,
    EngineSpec,
    Placement,
    Requests,
    ScalingMode,
    Speculation,
    SpeculationMode,
    SpeculativeService,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanOptions:
    """What a hand sets above the service; None leaves the service's own value."""

    dtype: Dtype | None = None
    """Numeric path of target and draft."""
    threads: int | None = None
    """Threads of the target."""
    cache: str | None = None
    """The workers' folder for prepared models."""
    api_keys_file: str | None = None
    """Keys of which the targets want one; drafts want none, for they listen on loopback only."""
    tls_cert: str | None = None
    """What the targets show; drafts speak no TLS."""
    tls_key: str | None = None
    """The private key of `tls_cert`."""


@dataclass(frozen=True, slots=True)
class WorkerPlan:
    """One worker; its address is the hand's to choose."""

    name: str
    """Unique in the plan."""
    settings: WorkerSettings
    """What it is started with."""
    links: tuple[str, ...] = ()
    """Targets only: names of the drafts that it pairs with."""

    @property
    def role(self) -> Role:
        """Target or draft."""
        return self.settings.role


@dataclass(frozen=True, slots=True)
class Plan:
    """The workers of one service."""

    workers: tuple[WorkerPlan, ...]
    """In the order to start: drafts first, each healthy before the next, because a target measures
    its step costs while it starts and wants the machine quiet."""
    control: ControlSettings
    """How drafting is switched, and drafts are given back, while they run."""

    @property
    def preparations(self) -> tuple[WorkerPlan, ...]:
        """One worker for each model to prepare, targets first: a draft may borrow from a target."""
        first: dict[Hashable, WorkerPlan] = {}
        for worker in (*self.of(Role.TARGET), *self.of(Role.DRAFT)):
            first.setdefault((worker.settings.model, worker.settings.colocated), worker)
        return tuple(first.values())

    def of(self, role: Role) -> tuple[WorkerPlan, ...]:
        """The workers of one role, in the order to start."""
        return tuple(worker for worker in self.workers if worker.role is role)


def plan(service: SpeculativeService, options: PlanOptions) -> Plan:
    """The workers that `service` needs."""
    draft = _wanted_draft(service)
    colocated = draft is not None and draft.placement is Placement.COLOCATED
    held = service.spec.target.first_replicas  # all start together, and none is added
    drafts = () if draft is None or colocated else _drafts(service, draft, options, held)
    settings = _target_settings(service, draft if colocated else None, options)
    links = tuple(worker.name for worker in drafts)
    names = (
        target_name(service.metadata.name, n) for n in range(service.spec.target.first_replicas)
    )
    workers = (*drafts, *(WorkerPlan(name, settings, links) for name in names))
    return Plan(workers, control(service, held))


def role_settings(service: SpeculativeService, role: Role, options: PlanOptions) -> WorkerSettings:
    """What every worker of a role is started with, whatever the mode and the number of replicas."""
    draft = service.spec.draft
    if role is Role.TARGET:
        colocated = draft is not None and draft.placement is Placement.COLOCATED
        return _target_settings(service, draft if colocated else None, options)
    if draft is None:
        raise ValueError("role: draft is not allowed; the service has none")
    return _draft_settings(service, draft, options, _most_targets(service))


def control(service: SpeculativeService, targets: int | None = None) -> ControlSettings:
    """How drafting is switched, and drafts are given back; drafts hold the sessions of so many
    `targets`, None: as `role_settings` has them."""
    draft = service.spec.draft
    held = _most_targets(service) if targets is None else targets
    return control_settings(service, 1 if draft is None else _sessions(service, draft, held))


def sessions(service: SpeculativeService, draft: Draft) -> int:
    """What one draft of a cluster holds at once."""
    return _sessions(service, draft, _most_targets(service))


def policy(service: SpeculativeService) -> PolicySettings:
    """The policy that the service describes, before anything is measured."""
    return _policy(service.spec.speculation)


def _wanted_draft(service: SpeculativeService) -> Draft | None:
    spec = service.spec
    return None if spec.speculation.mode is SpeculationMode.DISABLED else spec.draft


def _target_settings(
    service: SpeculativeService, colocated: Draft | None, options: PlanOptions
) -> WorkerSettings:
    target = service.spec.target
    model = ModelSettings(uri=target.model.source, dtype=_dtype(target.engine, options))
    return WorkerSettings(
        role=Role.TARGET,
        name=service.served_name,
        model=model,
        device=_device(target.engine),
        threads=options.threads or target.engine.threads,
        tensor_parallel=target.parallelism.tensor,
        max_context=target.engine.max_context,
        **_memory(target.engine, target.engine.max_running),
        **_limits(target.requests),
        policy=_policy(service.spec.speculation),
        colocated=_draft_model(service, colocated, options) if colocated else None,
        cache=options.cache,
        api_keys_file=options.api_keys_file,
        tls_cert=options.tls_cert,
        tls_key=options.tls_key,
    )


def _drafts(
    service: SpeculativeService, draft: Draft, options: PlanOptions, held: int
) -> tuple[WorkerPlan, ...]:
    settings = _draft_settings(service, draft, options, held)
    names = (draft_name(service.metadata.name, replica) for replica in range(draft.first_replicas))
    return tuple(WorkerPlan(name, settings) for name in names)


def _draft_settings(
    service: SpeculativeService, draft: Draft, options: PlanOptions, held: int
) -> WorkerSettings:
    return WorkerSettings(
        role=Role.DRAFT,
        name=service.served_name,
        model=_draft_model(service, draft, options),
        device=_device(draft.engine),
        threads=draft.engine.threads,
        tensor_parallel=draft.parallelism.tensor,
        max_context=draft.engine.max_context or service.spec.target.engine.max_context,
        **_memory(draft.engine, _sessions(service, draft, held)),
        policy=_policy(service.spec.speculation),
        cache=options.cache,
    )


def _draft_model(service: SpeculativeService, draft: Draft, options: PlanOptions) -> ModelSettings:
    borrows = draft.model.embeddings_from is not None
    return ModelSettings(
        uri=draft.model.source,
        embeddings_from=service.spec.target.model.source if borrows else None,
        dtype=_dtype(draft.engine, options),
    )


def _sessions(service: SpeculativeService, draft: Draft, held: int) -> int:
    """What a draft holds at once: as much as `held` targets run, unless it says otherwise."""
    if draft.engine.max_running is not None:
        return draft.engine.max_running
    return min(service.spec.target.engine.max_running * held, MAX_RUNNING)


def _most_targets(service: SpeculativeService) -> int:
    """For how many targets a draft of a cluster has room: a number that does not change while
    targets are scaled, for a worker's memory is laid out when it starts."""
    scaling = service.spec.target.scaling
    return scaling.max_replicas if scaling.mode is ScalingMode.EXTERNAL else 1


def _memory(engine: EngineSpec, running: int) -> dict[str, Any]:
    """Settings of how much is held at once."""
    return {
        "max_running": running,
        "kv_bytes": engine.kv_bytes,
        "prefix_cache": engine.prefix_cache,
    }


def _limits(requests: Requests) -> dict[str, Any]:
    """Settings of how long a target's requests may take and wait, and how many may wait."""
    return {
        "request_seconds": requests.max_seconds,
        "queue_seconds": requests.max_queue_seconds,
        "max_waiting": requests.max_waiting,
    }


def _device(engine: EngineSpec) -> Device:
    return Device[engine.device.name]


def _dtype(engine: EngineSpec, options: PlanOptions) -> Dtype:
    return options.dtype or engine.dtype


def _policy(speculation: Speculation) -> PolicySettings:
    adaptive = speculation.mode is SpeculationMode.ADAPTIVE
    return PolicySettings(
        speculate=speculation.mode is not SpeculationMode.DISABLED,
        max_rows=speculation.max_rows,
        depth=speculation.depth,
        width=speculation.width,
        nodes_ahead=speculation.nodes_ahead,
        off_below_percent=speculation.disable.gain_below_percent if adaptive else 0,
        on_above_percent=speculation.enable.gain_above_percent,
    )
