"""Pod template of a role: init containers that prepare its models, then its worker or workers.

Restricted in the sense of the Pod Security Standards; the cluster's rules come over that, and the
user's `podTemplate` last.
Leaves the containers of a worker to `containers`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from outrider.contract.settings import Role
from outrider.operator.cluster.differences import digest
from outrider.operator.manifests import containers
from outrider.operator.manifests.child import Object
from outrider.operator.manifests.containers import PodWorker
from outrider.operator.manifests.groups import GroupDiscovery
from outrider.operator.manifests.overlay import merge
from outrider.operator.manifests.termination import pod_seconds
from outrider.operator.naming import (
    DRAFTS_LABEL,
    IDENTITY_ANNOTATION,
    POLICY_KEY,
    RESTARTED_ANNOTATION,
    REVISION_LABEL,
    SETTINGS_ANNOTATION,
    group_labels,
    identity,
    intent_name,
    labels,
    role_name,
)
from outrider.operator.observed.owner import Owner
from outrider.operator.spec.pods import Cache, CacheType
from outrider.operator.spec.surroundings import Topology, TopologyPolicy

NONROOT = 65532
FIXED_USER = dict.fromkeys(("runAsUser", "runAsGroup", "fsGroup"), NONROOT)
"""User and groups of the images."""
SPREAD = {"kubernetes.io/hostname": 100, "topology.kubernetes.io/zone": 50}
"""Labels of nodes over whose domains targets are shared out, and the weight of that wish."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PodRules:
    """What a cluster wants of all pods."""

    template: Mapping[str, Any] = field(default_factory=dict)
    """Laid over the operator's template, and under the role's `podTemplate`."""
    fixed_user: bool = True
    """Pods name the user of the images; False: the platform gives them one."""


@dataclass(frozen=True, slots=True)
class PodPlan:
    """Inputs of one role's pod template."""

    worker: PodWorker
    """The worker that the pod is there for."""
    topology: Topology
    leaders: Mapping[str, str]
    """Labels of the targets' pods that answer, of which drafts want to be near."""
    draft: PodWorker | None = None
    """A target's own draft; None: its drafts are elsewhere."""
    lender: str | None = None
    """Service whose drafts a target links to; None: its own, or none."""
    discovery: GroupDiscovery | None = None
    """Variables by which the pods of a replica find each other; None: it has one pod."""
    rules: PodRules = field(default_factory=PodRules)
    restarted_at: str = ""
    """Value of the service's annotation that replaces pods where it changes; empty: none."""

    @property
    def workers(self) -> tuple[PodWorker, ...]:
        """All workers of the pod."""
        return (self.worker,) if self.draft is None else (self.worker, self.draft)


def pod_template(owner: Owner, plan: PodPlan) -> Object:
    """Return the template of a role's pods, with its revision among the labels.

    Labels and annotations that the operator reads stay, whatever the user's template says.
    """
    own = _own(owner, plan)
    clusters = merge(own, plan.rules.template)
    template: Object = merge(clusters, plan.worker.spec.pod_template or {})
    for words, fixed in own["metadata"].items():
        template["metadata"][words] = {**template["metadata"].get(words, {}), **fixed}
    template["metadata"]["labels"].pop(REVISION_LABEL, None)
    revision = digest(template)
    template["metadata"]["labels"][REVISION_LABEL] = revision
    return template


def _own(owner: Owner, plan: PodPlan) -> Object:
    spec: Object = {
        "serviceAccountName": owner.name,
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": pod_seconds(plan.worker.spec),
        "securityContext": {
            "runAsNonRoot": True,
            **(FIXED_USER if plan.rules.fixed_user else {}),
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "initContainers": [containers.prepare(worker) for worker in plan.workers],
        "containers": _containers(plan),
        "volumes": _volumes(owner, plan),
    }
    if affinity := _nearness(plan) if plan.worker.role is Role.DRAFT else _distance(plan):
        spec["affinity"] = affinity
    role = plan.worker.role
    several = {} if plan.discovery is None else group_labels(role)
    lender = {} if plan.lender is None else {DRAFTS_LABEL: plan.lender}
    metadata = {
        "labels": {**labels(owner.name, role), **several, **lender},
        "annotations": _annotations(owner, plan),
    }
    return {"metadata": metadata, "spec": spec}


def _annotations(owner: Owner, plan: PodPlan) -> dict[str, str]:
    found = {SETTINGS_ANNOTATION: ",".join(worker.settings for worker in plan.workers)}
    if plan.worker.certificate:
        name = identity(owner.namespace, owner.name, plan.worker.role)
        found[IDENTITY_ANNOTATION] = name
    if plan.restarted_at:
        found[RESTARTED_ANNOTATION] = plan.restarted_at
    return found


def _containers(plan: PodPlan) -> list[Object]:
    draft = plan.draft
    main = containers.serve(plan.worker, plan.discovery, linked=draft is not None)
    return [main] if draft is None else [main, containers.keep_draft(draft)]


def _volumes(owner: Owner, plan: PodPlan) -> list[Object]:
    policy = {"key": POLICY_KEY, "path": POLICY_KEY}
    intent = {"name": intent_name(owner.name), "items": [policy], "optional": True}
    settings, *others = containers.volumes(plan.worker)
    volumes: list[Object] = [
        settings,
        {"name": "policy", "configMap": intent},
        {"name": "cache", **_cache(owner, plan.worker.role, plan.worker.spec.cache)},
        *others,
    ]
    if plan.draft is None:
        return volumes
    return [*volumes, *containers.volumes(plan.draft), containers.link_volume()]


def _cache(owner: Owner, role: Role, cache: Cache) -> Object:
    if cache.type is CacheType.PERSISTENT_VOLUME_CLAIM:
        name = cache.claim_name or claim_name(owner, role)
        return {"persistentVolumeClaim": {"claimName": name}}
    return {"emptyDir": {"sizeLimit": cache.size} if cache.size else {}}


def claim_name(owner: Owner, role: Role) -> str:
    """Return the name of the claim that the operator makes for a role's cache."""
    return f"{role_name(owner.name, role)}-cache"


def _nearness(plan: PodPlan) -> Object:
    """Return the affinity of drafts to the targets' leaders: a link's round trip delays every draft
    token, and links end at leaders."""
    topology = plan.topology
    if topology.policy is TopologyPolicy.NONE:
        return {}
    term = _term(topology.key, plan.leaders)
    if topology.policy is TopologyPolicy.REQUIRED:
        return {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    wish = {"weight": 100, "podAffinityTerm": term}
    return {"podAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [wish]}}


def _distance(plan: PodPlan) -> Object:
    """Return the wish of targets to be apart: a machine that is lost takes few with it.

    No topologySpreadConstraints: nodes that lack one of their labels count for none of them, and
    many clusters have no zones. Pods of one replica want to be near each other.
    """
    if plan.discovery is not None:
        return {}
    wishes = [
        {"weight": weight, "podAffinityTerm": _term(key, plan.leaders)}
        for key, weight in SPREAD.items()
    ]
    return {"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": wishes}}


def _term(key: str, pods: Mapping[str, str]) -> Object:
    return {"labelSelector": {"matchLabels": {**pods}}, "topologyKey": key}
