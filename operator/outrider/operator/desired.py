"""Which objects a service wants, all of them, in the order in which they are made. Pure.

How many replicas and which policy comes from elsewhere; nothing here compares or applies.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from outrider.contract.settings import PolicySettings, Role, WorkerSettings
from outrider.operator import workload_plan
from outrider.operator.carriers import Standing
from outrider.operator.kinds import INFERENCE_POOL, POD_MONITOR, ObjectKind
from outrider.operator.manifests import monitoring, pool, safety, services, settings, workloads
from outrider.operator.manifests.child import ChildKey, Object, Owner
from outrider.operator.manifests.pods import PodPlan, pod_template
from outrider.operator.naming import selector
from outrider.operator.plan import PlanOptions, role_settings
from outrider.operator.spec import (
    Automatic,
    CacheType,
    Draft,
    Placement,
    ScalingMode,
    SpeculativeService,
    Target,
)
from outrider.operator.workload_plan import Arranged, Ground

NOTHING: Mapping[Role, Standing] = MappingProxyType({})
"""Of a service that is new."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """What does not depend on the service."""

    image: str
    """Of workers whose role names none."""
    kinds: frozenset[ObjectKind] = frozenset()
    """Of the optional kinds, those that the cluster serves."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Intent:
    """What the control loop wants to be stored."""

    policy: PolicySettings
    memory: str


@dataclass(frozen=True, slots=True)
class Desired:
    """Everything that a service wants."""

    objects: tuple[Object, ...]
    revisions: Mapping[Role, str]
    """What each role's newest pods carry."""
    selectors: Mapping[Role, Mapping[str, str]]
    """Labels of each role's pods that answer: one of each replica."""


def desired(
    owner: Owner,
    service: SpeculativeService,
    replicas: Mapping[Role, int | None],
    intent: Intent,
    around: Surroundings,
    stands: Mapping[Role, Standing] = NOTHING,
) -> Desired:
    """All children of a service; `replicas` None: somebody else owns that number. `stands` is what
    keeps pods running now."""
    grounds = {
        role: _ground(owner, service, role, around, stands.get(role, Standing()))
        for role in roles(service)
    }
    placed = {role: workload_plan.arranged(one, replicas[role]) for role, one in grounds.items()}
    objects = (
        safety.account(owner),
        settings.intent_map(owner, intent.policy, intent.memory),
        services.front(owner, placed[Role.TARGET].leads),
        *_watched(owner, service, around),
        *_pooled(owner, service, around, placed[Role.TARGET]),
        *(made for role, one in placed.items() for made in _role(owner, service, role, one)),
    )
    revisions = {role: one.revision for role, one in grounds.items()}
    picked = {role: {**selector(owner.name, role), **one.leads} for role, one in placed.items()}
    return Desired(objects, revisions, picked)


def roles(service: SpeculativeService) -> tuple[Role, ...]:
    """The roles that have pods of their own."""
    draft = service.spec.draft
    separate = draft is not None and draft.placement is Placement.SEPARATE
    return (Role.TARGET, Role.DRAFT) if separate else (Role.TARGET,)


def role_spec(service: SpeculativeService, role: Role) -> Target | Draft:
    """What the service says of a role that it has."""
    if role is Role.TARGET:
        return service.spec.target
    assert service.spec.draft is not None, "asked only for roles that are there"
    return service.spec.draft


def _ground(
    owner: Owner, service: SpeculativeService, role: Role, around: Surroundings, stands: Standing
) -> Ground:
    spec = role_spec(service, role)
    shape = workload_plan.shape(spec, stands, around.kinds)
    plan = PodPlan(
        role=role,
        spec=spec,
        image=spec.image or around.image,
        settings=settings.settings_name(owner, _settings(service, role)),
        topology=service.spec.topology,
        gathering=workload_plan.gathering(owner, role, spec.parallelism.nodes, shape),
    )
    return Ground(owner, role, spec, shape, pod_template(owner, plan), stands)


def _settings(service: SpeculativeService, role: Role) -> WorkerSettings:
    return settings.in_pod(role_settings(service, role, PlanOptions()))


def _role(
    owner: Owner, service: SpeculativeService, role: Role, placed: Arranged
) -> Iterator[Object]:
    spec = role_spec(service, role)
    nodes = spec.parallelism.nodes
    yield settings.settings_map(owner, _settings(service, role))
    yield services.headless(owner, role, placed.leads)
    if service.spec.network_policy.mode is not Automatic.DISABLED:
        yield safety.policy(owner, role, nodes)
    cache = spec.cache
    if cache.type is CacheType.PERSISTENT_VOLUME_CLAIM and cache.claim_name is None:
        yield workloads.claim(owner, role, cache)
    budget = service.spec.pod_disruption_budget
    if budget.mode is not Automatic.DISABLED:  # of one replica too: or it would come and go
        yield safety.budget(owner, role, budget.max_unavailable, nodes)
    yield from placed.objects
    if spec.scaling.mode.value == ScalingMode.EXTERNAL.value:
        yield workloads.scaler(owner, role)


def _watched(owner: Owner, service: SpeculativeService, around: Surroundings) -> Iterator[Object]:
    if service.spec.monitoring.mode is not Automatic.DISABLED and POD_MONITOR in around.kinds:
        seconds = service.spec.speculation.control.interval_seconds
        several = (role_spec(service, role).parallelism.nodes > 1 for role in roles(service))
        yield monitoring.monitor(owner, seconds, any(several))


def _pooled(
    owner: Owner, service: SpeculativeService, around: Surroundings, targets: Arranged
) -> Iterator[Object]:
    picker = service.spec.inference_pool.endpoint_picker
    if picker is not None and INFERENCE_POOL in around.kinds:
        yield pool.pool(owner, picker, targets.leads)


def unserved(service: SpeculativeService, around: Surroundings) -> dict[ChildKey, str]:
    """What a service insists on and the cluster cannot hold, and why."""
    asked = {
        POD_MONITOR: service.spec.monitoring.mode is Automatic.ENABLED,
        INFERENCE_POOL: service.spec.inference_pool.endpoint_picker is not None,
    }
    words = "the cluster did not serve this kind when the operator started"
    missing = (kind for kind, wanted in asked.items() if wanted and kind not in around.kinds)
    return {(kind.name, service.metadata.name): words for kind in missing}
