"""Plan of a service's workers: their settings, and the order in which they start. Pure.

The caller (`outrider run`, or the operator) gives each worker an address, links targets to their
drafts and pushes later changes of the policy; nothing here knows of processes or Kubernetes.
"""

from collections.abc import Hashable
from dataclasses import dataclass, replace

from outrider.contract.settings import (
    MAX_RUNNING,
    AllReduceKind,
    Device,
    Dtype,
    LinkTransport,
    ModelSettings,
    OffloadKind,
    PipelineSettings,
    PolicySettings,
    PrefillKind,
    Role,
    StageLink,
    WorkerSettings,
)
from outrider.contract.sources import SourceKind
from outrider.operator.control.settings import (
    ControlSettings,
    ScalingRule,
    SpeculationMode,
)
from outrider.operator.naming import draft_name, target_name
from outrider.operator.spec import accelerators
from outrider.operator.spec.accelerators import NO_PRICES, Prices
from outrider.operator.spec.roles import Draft, ScalingMode
from outrider.operator.spec.service import SpeculativeService, Suspend
from outrider.operator.spec.speculation import Speculation


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanOptions:
    """Settings of the caller that override the service's; None leaves the service's own value."""

    dtype: Dtype | None = None
    """Numeric type of target and draft."""
    threads: int | None = None
    """Threads of the target."""
    cache: str | None = None
    """Folder of the workers for prepared models."""
    api_keys_file: str | None = None
    """API keys that the targets accept; drafts need none, because they listen on loopback only."""
    tls_cert: str | None = None
    """Certificate of the targets; drafts use no TLS."""
    tls_key: str | None = None
    """The private key of `tls_cert`."""
    allowed_hosts: tuple[str, ...] = ()
    """Hosts beside localhost as which targets without API keys answer web pages."""


@dataclass(frozen=True, slots=True)
class WorkerPlan:
    """One worker; the caller chooses its address."""

    name: str
    """Name of the worker, unique in the plan."""
    settings: WorkerSettings
    """Settings that it is started with."""
    links: tuple[str, ...] = ()
    """Targets only: names of the drafts that it pairs with."""

    @property
    def role(self) -> Role:
        return self.settings.role


@dataclass(frozen=True, slots=True)
class Plan:
    """The workers of one service."""

    workers: tuple[WorkerPlan, ...]
    """In the order to start: drafts first, each healthy before the next, because a target measures
    its step costs while it starts and wants the machine quiet."""
    control: ControlSettings
    """Settings of the control loop while they run."""

    @property
    def preparations(self) -> tuple[WorkerPlan, ...]:
        """One worker for each model to prepare, targets first: a draft may borrow from a target."""
        first: dict[Hashable, WorkerPlan] = {}
        for worker in (*self.of(Role.TARGET), *self.of(Role.DRAFT)):
            first.setdefault((worker.settings.model, worker.settings.colocated), worker)
        return tuple(first.values())

    def of(self, role: Role) -> tuple[WorkerPlan, ...]:
        """Return the workers of one role, in the order to start."""
        return tuple(worker for worker in self.workers if worker.role is role)


def plan(service: SpeculativeService, options: PlanOptions) -> Plan:
    """Return the workers that `service` needs."""
    draft = _wanted_draft(service)
    colocated = draft is not None and not draft.is_worker
    targets = service.spec.target.first_replicas  # all start together, and none is added
    drafts = () if draft is None or colocated else _drafts(service, draft, options, targets)
    settings = _target_settings(service, draft if colocated else None, options)
    workers = (
        WorkerPlan(target_name(service.metadata.name, n), settings, _links(service, drafts, n))
        for n in range(targets)
    )
    return Plan((*drafts, *workers), control(service, targets))


def role_settings(service: SpeculativeService, role: Role, options: PlanOptions) -> WorkerSettings:
    """Return the settings of a role's workers, whatever the mode and the number of replicas."""
    draft = service.spec.draft
    if role is Role.TARGET:
        colocated = draft is not None and not draft.is_worker
        return _target_settings(service, draft if colocated else None, options)
    if draft is None:
        raise ValueError("role: draft is not allowed; the service has none")
    return _draft_settings(service, draft, options, _max_targets(service))


def control(
    service: SpeculativeService, targets: int | None = None, prices: Prices = NO_PRICES
) -> ControlSettings:
    """Return the settings of the control loop; drafts hold the sessions of so many `targets`, None:
    as `role_settings` has them, in a cluster, where another service's drafts may be; `prices` are
    those of GPUs."""
    draft, in_cluster = service.spec.draft, targets is None
    targets = _max_targets(service) if targets is None else targets
    sessions_per_draft = 1 if draft is None else _sessions(service, draft, targets)
    speculation = service.spec.speculation
    decided = ControlSettings(
        mode=speculation.mode,
        max_rows=speculation.max_rows,
        gain_below_percent=speculation.disable.gain_below_percent,
        gain_above_percent=speculation.enable.gain_above_percent,
        interval_seconds=speculation.control.interval_seconds,
        probe_interval_seconds=speculation.control.probe_interval_seconds,
        draft=_scaling(service, sessions_per_draft, prices),
    )
    lender = service.spec.drafts_of
    if draft is not None or (lender is not None and in_cluster):
        return decided
    because = "the service has no draft"
    if lender is not None:
        because = f"its drafts are those of the service {lender}, in a cluster"
    return replace(decided, mode=SpeculationMode.DISABLED, draftless=because)


def sessions(service: SpeculativeService, draft: Draft) -> int:
    """Return the number of sessions that one draft of a cluster holds at once."""
    return _sessions(service, draft, _max_targets(service))


def _wanted_draft(service: SpeculativeService) -> Draft | None:
    spec = service.spec
    return None if spec.speculation.mode is SpeculationMode.DISABLED else spec.draft


def _target_settings(
    service: SpeculativeService, colocated: Draft | None, options: PlanOptions
) -> WorkerSettings:
    target = service.spec.target
    model = ModelSettings(uri=target.model.source, dtype=options.dtype or target.engine.dtype)
    return WorkerSettings(
        role=Role.TARGET,
        name=service.served_name,
        model=model,
        device=Device[target.engine.device.name],
        threads=options.threads or target.engine.threads,
        tensor_parallel=target.parallelism.tensor,
        all_reduce=AllReduceKind[target.engine.all_reduce.name],
        pipeline=PipelineSettings(
            stages=target.parallelism.pipeline,
            cut=target.pipeline.cut or (),
            dtype=target.pipeline.dtype,
            link=StageLink[target.pipeline.link.name],
        ),
        max_context=target.engine.max_context,
        max_running=target.engine.max_running,
        kv_bytes=target.engine.kv_bytes,
        prefix_cache=target.engine.prefix_cache,
        prefill=PrefillKind[target.engine.prefill.name],
        request_seconds=target.requests.max_seconds,
        queue_seconds=target.requests.max_queue_seconds,
        max_waiting=target.requests.max_waiting,
        cut_max_tokens=target.requests.cut_max_tokens,
        policy=policy(service),
        link=LinkTransport[service.spec.speculation.link.name],
        colocated=_draft_model(service, colocated, options) if colocated else None,
        offload_draft=_offload(service),
        cache=options.cache,
        api_keys_file=options.api_keys_file,
        tls_cert=options.tls_cert,
        tls_key=options.tls_key,
        allowed_hosts=options.allowed_hosts,
    )


def _offload(service: SpeculativeService) -> OffloadKind:
    """Return when a draft in the target's process may lose its memory for a while; also of one
    whose placement is Auto, which `outrider run` may put there."""
    draft = service.spec.draft
    return OffloadKind.AUTO if draft is None else OffloadKind[draft.offload.name]


def _drafts(
    service: SpeculativeService, draft: Draft, options: PlanOptions, targets: int
) -> tuple[WorkerPlan, ...]:
    own = service.spec.same_pod
    settings = _draft_settings(service, draft, options, 1 if own else targets)
    replicas = range(targets if own else draft.first_replicas)
    names = (draft_name(service.metadata.name, replica) for replica in replicas)
    return tuple(WorkerPlan(name, settings) for name in names)


def _links(
    service: SpeculativeService, drafts: tuple[WorkerPlan, ...], target: int
) -> tuple[str, ...]:
    """Return the names of the drafts that a target pairs with: its own one, or all."""
    paired = drafts[target : target + 1] if service.spec.same_pod else drafts
    return tuple(worker.name for worker in paired)


def _draft_settings(
    service: SpeculativeService, draft: Draft, options: PlanOptions, targets: int
) -> WorkerSettings:
    return WorkerSettings(
        role=Role.DRAFT,
        name=service.served_name,
        model=_draft_model(service, draft, options),
        device=Device[draft.engine.device.name],
        threads=draft.engine.threads,
        tensor_parallel=draft.parallelism.tensor,
        all_reduce=AllReduceKind[draft.engine.all_reduce.name],
        max_context=draft.engine.max_context or service.spec.target.engine.max_context,
        max_running=_sessions(service, draft, targets),
        kv_bytes=draft.engine.kv_bytes,
        prefix_cache=service.spec.target.engine.prefix_cache,
        policy=policy(service),
        link=LinkTransport[service.spec.speculation.link.name],
        cache=options.cache,
    )


def _draft_model(service: SpeculativeService, draft: Draft, options: PlanOptions) -> ModelSettings:
    borrows = draft.model.embeddings_from is not None
    return ModelSettings(
        uri=draft.model.source,
        embeddings_from=service.spec.target.model.source if borrows else None,
        dtype=options.dtype or draft.engine.dtype,
    )


def _sessions(service: SpeculativeService, draft: Draft, targets: int) -> int:
    """Return the sessions of one draft: those that `targets` run, unless its engine names them."""
    if draft.engine.max_running is not None:
        return draft.engine.max_running
    return min(service.spec.target.engine.max_running * targets, MAX_RUNNING)


def _max_targets(service: SpeculativeService) -> int:
    """Return the number of targets that a draft has room for. It does not change while targets are
    scaled, because a worker's memory is allocated when it starts."""
    scaling = service.spec.target.scaling
    if service.spec.same_pod:
        return 1
    return scaling.max_replicas if scaling.mode is ScalingMode.EXTERNAL else 1


def policy(service: SpeculativeService) -> PolicySettings:
    """Return the policy that the service describes, before anything is measured."""
    speculation = service.spec.speculation
    off_below, on_above = _switch_percents(speculation)
    return PolicySettings(
        speculate=speculation.mode is not SpeculationMode.DISABLED,
        max_rows=speculation.max_rows,
        depth=speculation.depth,
        width=speculation.width,
        nodes_ahead=speculation.nodes_ahead,
        off_below_percent=off_below if speculation.mode is SpeculationMode.ADAPTIVE else 0,
        on_above_percent=on_above,
        sources=tuple(SourceKind[source.name] for source in speculation.sources),
    )


def _switch_percents(speculation: Speculation) -> tuple[int, int]:
    """Return the thresholds of the targets' own switches.

    A target saves time, not hardware: where the service names no threshold, its switch has its own,
    whatever the drafts' hardware costs.
    """
    off, on = speculation.disable.gain_below_percent, speculation.enable.gain_above_percent
    usual = PolicySettings()
    if off is None:
        off = usual.off_below_percent if on is None else min(usual.off_below_percent, on - 1)
    band = usual.on_above_percent - usual.off_below_percent
    return off, off + band if on is None else on


def _scaling(service: SpeculativeService, sessions: int, prices: Prices) -> ScalingRule:
    draft = service.spec.draft
    if draft is None or not draft.has_pods:
        return ScalingRule(managed=False, colocated=draft is not None and not draft.is_worker)
    suspended = service.spec.suspend is Suspend.SUSPENDED
    return ScalingRule(
        managed=draft.scaling.mode is ScalingMode.MANAGED,
        min_replicas=0 if suspended else draft.scaling.min_replicas,
        max_replicas=draft.scaling.max_replicas,
        shrink=service.spec.shrink_policy,
        after_seconds=service.spec.speculation.draft_shrink.after_seconds,
        idle_seconds=service.spec.speculation.draft_shrink.idle_seconds,
        sessions_per_replica=sessions,
        draft_gpus=accelerators.number(draft),
        target_gpus=accelerators.number(service.spec.target),
        draft_price=accelerators.price(draft, prices),
        target_price=accelerators.price(service.spec.target, prices),
    )
