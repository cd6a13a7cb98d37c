"""Desired objects of a service, in the order in which they are made. Pure.

The caller gives replicas and policy; leaves comparing and applying to `apply`.
"""

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from outrider.contract.settings import Device, PolicySettings, Role, WorkerSettings
from outrider.operator.certificates.authority import Authorities
from outrider.operator.certificates.issuer import Issuer
from outrider.operator.cluster.kinds import (
    INFERENCE_POOL,
    INSTALL_LWS,
    LEADER_WORKER_SET,
    POD_MONITOR,
    ChildKey,
    ObjectKind,
)
from outrider.operator.manifests import integrations, network, settings, workload_plan, workloads
from outrider.operator.manifests.certificates import issued_certificate, peer_settings
from outrider.operator.manifests.child import Object
from outrider.operator.manifests.containers import (
    API_KEYS_FILE,
    TLS_CERTIFICATE,
    TLS_KEY,
    PodWorker,
)
from outrider.operator.manifests.groups import GroupDiscovery
from outrider.operator.manifests.overlay import merge
from outrider.operator.manifests.pods import PodPlan, PodRules, pod_template
from outrider.operator.manifests.workload_plan import (
    LEADER_LABELS,
    WorkloadInputs,
    WorkloadObjects,
    WorkloadShape,
)
from outrider.operator.naming import (
    RESTARTED_ANNOTATION,
    certificate_name,
    issued_name,
    role_name,
    selector,
)
from outrider.operator.observed.live_workloads import LiveWorkloads
from outrider.operator.observed.owner import Owner
from outrider.operator.observed.pins import settings_of
from outrider.operator.plan import PlanOptions, role_settings
from outrider.operator.spec import accelerators
from outrider.operator.spec.accelerators import Prices
from outrider.operator.spec.pods import CacheType
from outrider.operator.spec.roles import Draft, ScalingMode, Target
from outrider.operator.spec.service import SpeculativeService
from outrider.operator.spec.speculation import DraftLink
from outrider.operator.spec.surroundings import Automatic

NOTHING: Mapping[Role, LiveWorkloads] = MappingProxyType({})
"""Live workloads of a new service."""
NO_SETS = (
    "replicas of several pods need LeaderWorkerSet, which this cluster does not serve;"
    f" install it: {INSTALL_LWS}"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Platform:
    """Settings that do not depend on the service."""

    image: str
    """Image of workers whose role names none."""
    pods: PodRules = field(default_factory=PodRules)
    """What the cluster wants of all pods."""
    kinds: frozenset[ObjectKind] = frozenset()
    """Optional kinds that the cluster serves."""
    monitor_labels: Mapping[str, str] = field(default_factory=dict)
    """Labels by which the cluster's Prometheus picks its PodMonitors."""
    gpu_prices: Prices = field(default_factory=dict)
    """Prices of GPUs for an hour; empty: all count alike."""
    namespace: str = ""
    """The operator's own; empty: it is not known."""
    authorities: Callable[[], Authorities] | None = None
    """The operator's authorities that sign the certificates of workers; None: it signs none."""
    issuer: Issuer | None = None
    """Issuer of the workers' certificates in the operator's place; None: there is none."""

    def runs(self, role: Target | Draft) -> bool:
        """True if the cluster serves the kind that keeps a role's replicas running."""
        return role.parallelism.pods == 1 or LEADER_WORKER_SET in self.kinds

    @property
    def certifies(self) -> bool:
        """True if workers have certificates."""
        return self.authorities is not None or self.issuer is not None

    @property
    def signers(self) -> Authorities | None:
        """The operator's authorities as they are now."""
        return None if self.authorities is None else self.authorities()

    def certificate_of(self, service: str, role: Role) -> str:
        """Return the name of the Secret with the certificate of a role's pods; empty: they have
        none."""
        if not self.certifies:
            return ""
        return (certificate_name if self.issuer is None else issued_name)(service, role)


@dataclass(frozen=True, slots=True, kw_only=True)
class Intent:
    """The control loop's decision, to be stored."""

    policy: PolicySettings
    memory: str


@dataclass(frozen=True, slots=True)
class Desired:
    """Desired objects of a service, and how to find its pods."""

    objects: tuple[Object, ...] = ()
    revisions: Mapping[Role, str] = field(default_factory=dict)
    """Revision of each role's newest pods."""
    selectors: Mapping[Role, Mapping[str, str]] = field(default_factory=dict)
    """Labels of each role's pods that answer: one of each replica."""
    next_revisions: Mapping[Role, str] = field(default_factory=dict)
    """Revisions that this operator would make of roles whose pods are kept."""


def desired(
    owner: Owner,
    service: SpeculativeService,
    replicas: Mapping[Role, int | None],
    intent: Intent,
    platform: Platform,
    current: Mapping[Role, LiveWorkloads] = NOTHING,
) -> Desired:
    """Return all children of a service; `replicas` None: the number has another owner. `current`
    are the workloads that keep pods running now."""
    maps = {
        worker: settings.settings_map(owner, _settings(service, worker, owner, platform), role)
        for role in roles(service)
        for worker in workers(service, role)
    }
    built = {
        role: _workload_inputs(owner, service, role, platform, current, maps)
        for role in roles(service)
    }
    inputs = {role: one.pinned for role, one in built.items()}
    planned = {
        role: workload_plan.plan_workloads(one, replicas[role]) for role, one in inputs.items()
    }
    objects = (
        workloads.service_account(owner),
        settings.intent_map(owner, intent.policy, intent.memory),
        network.front(owner, planned[Role.TARGET].leader_labels, tls=service.spec.client_tls),
        *_pod_monitor(owner, service, platform),
        *_inference_pool(owner, service, platform, planned[Role.TARGET]),
        *(
            child
            for role, one in planned.items()
            for child in _role(inputs[role], service, one, platform, maps)
        ),
    )
    revisions = {role: one.revision for role, one in inputs.items()}
    later = {r: one.revision for r, one in built.items() if one.revision != revisions[r]}
    selectors = {
        role: {**selector(owner.name, role), **one.leader_labels} for role, one in planned.items()
    }
    return Desired(objects, revisions, selectors, later)


def roles(service: SpeculativeService) -> tuple[Role, ...]:
    """Return the roles that have pods of their own."""
    draft = service.spec.draft
    separate = draft is not None and draft.has_pods
    return (Role.TARGET, Role.DRAFT) if separate else (Role.TARGET,)


def workers(service: SpeculativeService, pods: Role) -> tuple[Role, ...]:
    """Return the roles of the workers in each pod of a role."""
    both = pods is Role.TARGET and service.spec.same_pod
    return (pods, Role.DRAFT) if both else (pods,)


def role_spec(service: SpeculativeService, role: Role) -> Target | Draft:
    """Return the description of a role that the service has."""
    if role is Role.TARGET:
        return service.spec.target
    assert service.spec.draft is not None, "asked only for roles that are there"
    return service.spec.draft


def _workload_inputs(
    owner: Owner,
    service: SpeculativeService,
    role: Role,
    platform: Platform,
    current: Mapping[Role, LiveWorkloads],
    maps: Mapping[Role, Object],
) -> WorkloadInputs:
    spec = role_spec(service, role)
    worker, *beside = (
        _worker(owner, service, one, platform, maps[one]["metadata"]["name"])
        for one in workers(service, role)
    )
    plan = PodPlan(
        worker=worker,
        draft=beside[0] if beside else None,
        topology=service.spec.topology,
        leaders=_leaders(owner, service),
        discovery=GroupDiscovery.of(owner, role, spec.parallelism),
        rules=platform.pods,
        lender=service.spec.drafts_of,
        restarted_at=service.metadata.annotations.get(RESTARTED_ANNOTATION, ""),
    )
    return WorkloadInputs(
        owner=owner,
        role=role,
        spec=spec,
        served=platform.runs(spec),
        template=pod_template(owner, plan),
        current=current.get(role, LiveWorkloads()),
    )


def _leaders(owner: Owner, service: SpeculativeService) -> Mapping[str, str]:
    """Return the labels of the targets' pods that answer, once they are as described."""
    shape = WorkloadShape.of(service.spec.target)
    return {**selector(owner.name, Role.TARGET), **LEADER_LABELS[shape]}


def _worker(
    owner: Owner,
    service: SpeculativeService,
    role: Role,
    platform: Platform,
    config_map: str,
) -> PodWorker:
    spec, beside = role_spec(service, role), role not in roles(service)
    pods = role_spec(service, Role.TARGET) if beside else spec
    return PodWorker(
        role=role,
        spec=spec,
        image=spec.image or platform.image,
        settings=config_map,
        beside=beside,
        api_keys=service.spec.access.api_keys_secret_ref if role is Role.TARGET else None,
        tls=service.spec.access.tls_secret_ref if role is Role.TARGET else None,
        certificate="" if beside else platform.certificate_of(owner.name, role),
        template=merge(platform.pods.template, pods.pod_template or {}),
    )


def _settings(
    service: SpeculativeService, role: Role, owner: Owner, platform: Platform
) -> WorkerSettings:
    has_keys = service.spec.access.api_keys_secret_ref is not None
    options = PlanOptions(
        api_keys_file=API_KEYS_FILE if has_keys else None,
        tls_cert=TLS_CERTIFICATE if service.spec.client_tls else None,
        tls_key=TLS_KEY if service.spec.client_tls else None,
    )
    found = dataclasses.replace(
        role_settings(service, role, options),
        device=Device[accelerators.device(role_spec(service, role)).name],
        peers=peer_settings(owner, service.spec.drafts_of) if platform.certifies else None,
    )
    return settings.in_same_pod(found) if service.spec.same_pod else settings.in_pod(found)


def _peers(service: SpeculativeService, role: Role) -> Iterator[Role]:
    """Yield the roles whose pods exchange what they like with the pods of a role, on any port: its
    own where a replica has several, and the other where torch.distributed carries the links."""
    if role_spec(service, role).parallelism.pods > 1:
        yield role
    draft = service.spec.draft
    linked = draft is not None and draft.has_pods
    if linked and service.spec.speculation.link is DraftLink.DISTRIBUTED:
        yield Role.DRAFT if role is Role.TARGET else Role.TARGET


def _role(
    inputs: WorkloadInputs,
    service: SpeculativeService,
    planned: WorkloadObjects,
    platform: Platform,
    maps: Mapping[Role, Object],
) -> Iterator[Object]:
    owner, role, spec = inputs.owner, inputs.role, inputs.spec
    pods = spec.parallelism.pods
    if platform.issuer is not None:
        yield issued_certificate(owner, role, platform.issuer, service.spec.drafts_of)
    for made in (maps[worker] for worker in workers(service, role)):
        if made["metadata"]["name"] in settings_of(inputs.template):  # a kept one has others
            yield made
    tls = service.spec.client_tls and role is Role.TARGET
    yield network.headless(owner, role, planned.leader_labels, tls=tls)
    if service.spec.network_policy.mode is not Automatic.DISABLED:
        yield network.network_policy(
            owner,
            role,
            service.spec.network_policy,
            service.spec.same_pod,
            _peers(service, role),
            platform.namespace,
            service.spec.drafts_of,
        )
    cache = spec.cache
    if cache.type is CacheType.PERSISTENT_VOLUME_CLAIM and cache.claim_name is None:
        yield workloads.claim(owner, role, cache)
    budget = service.spec.pod_disruption_budget
    if budget.mode is not Automatic.DISABLED:  # of one replica too: or it would come and go
        yield workloads.disruption_budget(owner, role, budget.max_unavailable, pods)
    yield from planned.objects
    if spec.scaling.mode.value == ScalingMode.EXTERNAL.value:
        yield workloads.scaler(owner, role)


def _pod_monitor(owner: Owner, service: SpeculativeService, platform: Platform) -> Iterator[Object]:
    if service.spec.monitoring.mode is not Automatic.DISABLED and POD_MONITOR in platform.kinds:
        seconds = service.spec.speculation.control.interval_seconds
        several = any(role_spec(service, role).parallelism.pods > 1 for role in roles(service))
        endpoints = integrations.endpoints(
            roles(service), same_pod=service.spec.same_pod, tls=service.spec.client_tls
        )
        labels = platform.monitor_labels
        yield integrations.pod_monitor(owner, seconds, several, endpoints, labels)


def _inference_pool(
    owner: Owner, service: SpeculativeService, platform: Platform, targets: WorkloadObjects
) -> Iterator[Object]:
    picker = service.spec.inference_pool.endpoint_picker
    if picker is not None and INFERENCE_POOL in platform.kinds:
        yield integrations.inference_pool(owner, picker, targets.leader_labels)


def unproven(service: SpeculativeService, platform: Platform) -> frozenset[str]:
    """Return the roles whose pods somebody has described in part."""
    described = (
        role
        for role in roles(service)
        if role_spec(service, role).pod_template or platform.pods.template
    )
    return frozenset(role.value for role in described)


def unserved(service: SpeculativeService, platform: Platform) -> dict[ChildKey, str]:
    """Return the objects that a service requires of kinds that the cluster lacks, and why."""
    asked = {
        POD_MONITOR: service.spec.monitoring.mode is Automatic.ENABLED,
        INFERENCE_POOL: service.spec.inference_pool.endpoint_picker is not None,
    }
    words = "the cluster did not serve this kind when the operator started"
    missing = (kind for kind, wanted in asked.items() if wanted and kind not in platform.kinds)
    found = {(kind.name, service.metadata.name): words for kind in missing}
    for role in roles(service):
        if not platform.runs(role_spec(service, role)):
            name = role_name(service.metadata.name, role)
            found[LEADER_WORKER_SET.name, name] = NO_SETS
    return found
