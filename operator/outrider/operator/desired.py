"""Which objects a service wants, all of them, in the order in which they are made. Pure.

How many replicas and which policy comes from elsewhere; nothing here compares or applies.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from outrider.contract.settings import PolicySettings, Role, WorkerSettings
from outrider.operator.kinds import POD_MONITOR, Kind
from outrider.operator.manifests import monitoring, safety, services, settings, workloads
from outrider.operator.manifests.child import ChildKey, Object, Owner
from outrider.operator.manifests.pods import PodPlan, pod_template, revision_of
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """What does not depend on the service."""

    image: str
    """Of workers whose role names none."""
    kinds: frozenset[Kind] = frozenset()
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


def desired(
    owner: Owner,
    service: SpeculativeService,
    replicas: Mapping[Role, int | None],
    intent: Intent,
    around: Surroundings,
) -> Desired:
    """All children of a service; `replicas` None: somebody else owns that number."""
    templates = {role: _template(owner, service, role, around) for role in roles(service)}
    objects = (
        safety.account(owner),
        settings.intent_map(owner, intent.policy, intent.memory),
        services.front(owner),
        *_watched(owner, service, around),
        *(
            made
            for role, template in templates.items()
            for made in _role(owner, service, role, template, replicas[role])
        ),
    )
    return Desired(objects, {role: revision_of(t) for role, t in templates.items()})


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


def _template(
    owner: Owner, service: SpeculativeService, role: Role, around: Surroundings
) -> Object:
    spec = role_spec(service, role)
    plan = PodPlan(
        role=role,
        spec=spec,
        image=spec.image or around.image,
        settings=settings.settings_name(owner, _settings(service, role)),
        topology=service.spec.topology,
    )
    return pod_template(owner, plan)


def _settings(service: SpeculativeService, role: Role) -> WorkerSettings:
    return settings.in_pod(role_settings(service, role, PlanOptions()))


def _role(
    owner: Owner, service: SpeculativeService, role: Role, template: Object, replicas: int | None
) -> Iterator[Object]:
    spec = role_spec(service, role)
    yield settings.settings_map(owner, _settings(service, role))
    yield services.headless(owner, role)
    if service.spec.network_policy.mode is not Automatic.DISABLED:
        made = safety.target_policy if role is Role.TARGET else safety.draft_policy
        yield made(owner)
    cache = spec.cache
    if cache.type is CacheType.PERSISTENT_VOLUME_CLAIM and cache.claim_name is None:
        yield workloads.claim(owner, role, cache)
    budget = service.spec.pod_disruption_budget
    several = replicas is None or replicas > 1
    if budget.mode is Automatic.ENABLED or (budget.mode is Automatic.AUTO and several):
        yield safety.budget(owner, role, budget.max_unavailable)
    yield workloads.deployment(owner, role, template, replicas, spec.update)
    if spec.scaling.mode.value == ScalingMode.EXTERNAL.value:
        yield workloads.scaler(owner, role)


def _watched(owner: Owner, service: SpeculativeService, around: Surroundings) -> Iterator[Object]:
    if service.spec.monitoring.mode is not Automatic.DISABLED and POD_MONITOR in around.kinds:
        yield monitoring.monitor(owner, service.spec.speculation.control.interval_seconds)


def unserved(service: SpeculativeService, around: Surroundings) -> dict[ChildKey, str]:
    """What a service insists on and the cluster cannot hold, and why."""
    enabled = service.spec.monitoring.mode is Automatic.ENABLED
    if not enabled or POD_MONITOR in around.kinds:
        return {}
    words = "the cluster did not serve this kind when the operator started"
    return {(POD_MONITOR.name, service.metadata.name): words}
