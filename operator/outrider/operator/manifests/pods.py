"""The pod that runs one worker: an init container that prepares the model, then the worker.

Restricted in the sense of the Pod Security Standards; what a user's `podTemplate` says comes last.
"""

from dataclasses import dataclass
from typing import Any

from outrider.contract.ports import GRPC, HTTP
from outrider.contract.settings import Role
from outrider.operator.differences import digest
from outrider.operator.manifests.child import Object, Owner
from outrider.operator.manifests.groups import RENDEZVOUS_PORT, Gathering, environment
from outrider.operator.manifests.overlay import laid_over
from outrider.operator.manifests.settings import CACHE, POLICY_KEY, SETTINGS_KEY
from outrider.operator.naming import (
    CONTAINER,
    REVISION_LABEL,
    SETTINGS_ANNOTATION,
    grouped,
    intent_name,
    labels,
    role_name,
    selector,
)
from outrider.operator.spec import Cache, CacheType, Draft, Target, Topology, TopologyPolicy

SETTINGS_FOLDER = "/etc/outrider/settings"
POLICY_FOLDER = "/etc/outrider/policy"
PREPARE = "prepare"
TOKEN = "HF_TOKEN"
OFFLINE = "HF_HUB_OFFLINE"
GRACE_SECONDS = 60
"""Until SIGKILL; a worker gives running requests less than that."""
LOADING_SECONDS, PERIOD = 1800, 5
"""Longest that a worker may take to load its weights, and how often it is asked."""
ANSWER_SECONDS = 5
"""Longest wait for an answer to a probe: a busy machine is no reason to restart a worker."""
NOBODY = 65532
"""User and group of the images."""


@dataclass(frozen=True, slots=True)
class PodPlan:
    """What one role's pods are made of."""

    role: Role
    spec: Target | Draft
    image: str
    settings: str
    """Name of the ConfigMap with the settings."""
    topology: Topology
    gathering: Gathering | None = None
    """Where a replica has several pods, how they find each other."""


def pod_template(owner: Owner, plan: PodPlan) -> Object:
    """The template of a role's pods, with its revision among the labels.

    What pods are found and read by stays the operator's, whatever the user's template says.
    """
    own = _own(owner, plan)
    template: Object = laid_over(own, plan.spec.pod_template or {})
    for words, fixed in own["metadata"].items():
        template["metadata"][words] = {**template["metadata"].get(words, {}), **fixed}
    template["metadata"]["labels"].pop(REVISION_LABEL, None)
    revision = digest(template)
    template["metadata"]["labels"][REVISION_LABEL] = revision
    return template


def revision_of(template: Object) -> str:
    """The revision that a template's pods carry."""
    return str(template["metadata"]["labels"][REVISION_LABEL])


def _own(owner: Owner, plan: PodPlan) -> Object:
    spec: Object = {
        "serviceAccountName": owner.name,
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": GRACE_SECONDS,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": NOBODY,
            "runAsGroup": NOBODY,
            "fsGroup": NOBODY,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "initContainers": [_prepare(plan)],
        "containers": [_worker(plan)],
        "volumes": _volumes(owner, plan),
    }
    near = _affinity(owner, plan)
    if near:
        spec["affinity"] = near
    several = {} if plan.gathering is None else grouped(plan.role)
    metadata = {
        "labels": {**labels(owner.name, plan.role), **several},
        "annotations": {SETTINGS_ANNOTATION: plan.settings},
    }
    return {"metadata": metadata, "spec": spec}


def _prepare(plan: PodPlan) -> Object:
    """Fetches and converts the weights into the cache; done at once where they are there."""
    return _container(plan, PREPARE, PREPARE, _mounts())


def _worker(plan: PodPlan) -> Object:
    mounts = [*_mounts(), {"name": "policy", "mountPath": POLICY_FOLDER, "readOnly": True}]
    if plan.spec.shared_memory_size:
        mounts.append({"name": "shared-memory", "mountPath": "/dev/shm"})
    return {
        **_container(plan, CONTAINER, "serve", mounts),
        "ports": [_port("grpc", GRPC), _port("http", HTTP), *_rendezvous(plan)],
        "startupProbe": _probe("/healthz", LOADING_SECONDS // PERIOD, PERIOD),
        "readinessProbe": _probe("/readyz", 2, 2),
        "livenessProbe": _probe("/healthz", 3, 10),
    }


def _container(plan: PodPlan, name: str, command: str, mounts: list[Object]) -> Object:
    arguments = [command, "--settings", f"{SETTINGS_FOLDER}/{SETTINGS_KEY}"]
    if command == "serve":
        arguments += ["--policy", f"{POLICY_FOLDER}/{POLICY_KEY}"]
    container: Object = {
        "name": name,
        "image": plan.image,
        "args": arguments,
        "env": [*_places(), *(_access(plan) if name == PREPARE else _serving(plan))],
        "volumeMounts": mounts,
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
    }
    if plan.spec.resources:  # both: preparing takes memory too, and a pod counts the larger
        container["resources"] = plan.spec.resources.model_dump(by_alias=True, exclude_none=True)
    return container


def _places() -> list[Object]:
    return [
        {"name": "HOME", "value": CACHE},
        {"name": "NUMBA_CACHE_DIR", "value": f"{CACHE}/compiled"},
    ]


def _access(plan: PodPlan) -> list[Object]:
    """The token, for who fetches the weights and for nobody else."""
    secret = plan.spec.model.token_secret_ref
    if secret is None:
        return []
    reference = {"name": secret.name, "key": secret.key}
    return [{"name": TOKEN, "valueFrom": {"secretKeyRef": reference}}]


def _serving(plan: PodPlan) -> list[Object]:
    """The worker finds what was fetched, of the same revision, and asks nobody for it."""
    offline = {"name": OFFLINE, "value": "1"}
    return [offline] if plan.gathering is None else [offline, *environment(plan.gathering)]


def _mounts() -> list[Object]:
    return [
        {"name": "settings", "mountPath": SETTINGS_FOLDER, "readOnly": True},
        {"name": "cache", "mountPath": CACHE},
        {"name": "temporary", "mountPath": "/tmp"},
    ]


def _volumes(owner: Owner, plan: PodPlan) -> list[Object]:
    policy = {"key": POLICY_KEY, "path": POLICY_KEY}
    intent = {"name": intent_name(owner.name), "items": [policy], "optional": True}
    volumes: list[Object] = [
        {"name": "settings", "configMap": {"name": plan.settings}},
        {"name": "policy", "configMap": intent},
        {"name": "cache", **_cache(owner, plan.role, plan.spec.cache)},
        {"name": "temporary", "emptyDir": {}},
    ]
    if plan.spec.shared_memory_size:
        memory = {"medium": "Memory", "sizeLimit": plan.spec.shared_memory_size}
        volumes.append({"name": "shared-memory", "emptyDir": memory})
    return volumes


def _cache(owner: Owner, role: Role, cache: Cache) -> Object:
    if cache.type is CacheType.PERSISTENT_VOLUME_CLAIM:
        name = cache.claim_name or claim_name(owner, role)
        return {"persistentVolumeClaim": {"claimName": name}}
    return {"emptyDir": {"sizeLimit": cache.size} if cache.size else {}}


def claim_name(owner: Owner, role: Role) -> str:
    """Name of the claim that the operator makes for a role's cache."""
    return f"{role_name(owner.name, role)}-cache"


def _affinity(owner: Owner, plan: PodPlan) -> Object:
    """Drafts go where the targets are: a link's round trip is part of every guess."""
    topology = plan.topology
    if plan.role is not Role.DRAFT or topology.policy is TopologyPolicy.NONE:
        return {}
    term: Object = {
        "labelSelector": {"matchLabels": selector(owner.name, Role.TARGET)},
        "topologyKey": topology.key,
    }
    if topology.policy is TopologyPolicy.REQUIRED:
        return {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    weighted = {"weight": 100, "podAffinityTerm": term}
    return {"podAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [weighted]}}


def _rendezvous(plan: PodPlan) -> list[Object]:
    return [] if plan.gathering is None else [RENDEZVOUS_PORT]


def _port(name: str, number: int) -> Object:
    return {"name": name, "containerPort": number, "protocol": "TCP"}


def _probe(path: str, failures: int, seconds: int) -> Object:
    get: dict[str, Any] = {"path": path, "port": "http"}
    return {
        "httpGet": get,
        "periodSeconds": seconds,
        "failureThreshold": failures,
        "timeoutSeconds": ANSWER_SECONDS,
    }
