"""Pod template of a worker: an init container that prepares the model, then the worker.

Restricted in the sense of the Pod Security Standards; the user's `podTemplate` is merged last.
"""

from dataclasses import dataclass
from typing import Any

from outrider.contract.process import GRPC_PORT, HTTP_PORT
from outrider.contract.settings import Role
from outrider.operator.cluster.differences import digest
from outrider.operator.manifests.child import Object, Owner
from outrider.operator.manifests.groups import (
    RENDEZVOUS_CONTAINER_PORT,
    GroupDiscovery,
    environment,
)
from outrider.operator.manifests.overlay import merge
from outrider.operator.manifests.settings import CACHE, POLICY_KEY, SETTINGS_KEY
from outrider.operator.naming import (
    CONTAINER,
    REVISION_LABEL,
    SETTINGS_ANNOTATION,
    group_labels,
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
"""Seconds until SIGKILL; a worker gives running requests less than that."""
LOADING_SECONDS, PERIOD = 1800, 5
"""Longest seconds for a worker to load its weights, and seconds between two probes."""
ANSWER_SECONDS = 5
"""Longest wait for an answer to a probe: a busy machine is no reason to restart a worker."""
NONROOT = 65532
"""User and group of the images."""


@dataclass(frozen=True, slots=True)
class PodPlan:
    """Inputs of one role's pod template."""

    role: Role
    spec: Target | Draft
    image: str
    settings: str
    """Name of the ConfigMap with the settings."""
    topology: Topology
    discovery: GroupDiscovery | None = None
    """Variables by which the pods of a replica find each other; None: it has one pod."""


def pod_template(owner: Owner, plan: PodPlan) -> Object:
    """Return the template of a role's pods, with its revision among the labels.

    Labels and annotations that the operator reads stay, whatever the user's template says.
    """
    own = _own(owner, plan)
    template: Object = merge(own, plan.spec.pod_template or {})
    for words, fixed in own["metadata"].items():
        template["metadata"][words] = {**template["metadata"].get(words, {}), **fixed}
    template["metadata"]["labels"].pop(REVISION_LABEL, None)
    revision = digest(template)
    template["metadata"]["labels"][REVISION_LABEL] = revision
    return template


def revision_of(template: Object) -> str:
    """Return the revision that a template's pods carry."""
    return str(template["metadata"]["labels"][REVISION_LABEL])


def _own(owner: Owner, plan: PodPlan) -> Object:
    spec: Object = {
        "serviceAccountName": owner.name,
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": GRACE_SECONDS,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": NONROOT,
            "runAsGroup": NONROOT,
            "fsGroup": NONROOT,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "initContainers": [_prepare(plan)],
        "containers": [_worker(plan)],
        "volumes": _volumes(owner, plan),
    }
    near = _affinity(owner, plan)
    if near:
        spec["affinity"] = near
    several = {} if plan.discovery is None else group_labels(plan.role)
    metadata = {
        "labels": {**labels(owner.name, plan.role), **several},
        "annotations": {SETTINGS_ANNOTATION: plan.settings},
    }
    return {"metadata": metadata, "spec": spec}


def _prepare(plan: PodPlan) -> Object:
    """Return the container that fetches and converts the weights; it ends at once where the cache
    has them."""
    return _container(plan, PREPARE, PREPARE, _mounts())


def _worker(plan: PodPlan) -> Object:
    mounts = [*_mounts(), {"name": "policy", "mountPath": POLICY_FOLDER, "readOnly": True}]
    if plan.spec.shared_memory_size:
        mounts.append({"name": "shared-memory", "mountPath": "/dev/shm"})
    return {
        **_container(plan, CONTAINER, "serve", mounts),
        "ports": [_port("grpc", GRPC_PORT), _port("http", HTTP_PORT), *_rendezvous(plan)],
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
    """Return the Hugging Face token, for the container that fetches the weights alone."""
    secret = plan.spec.model.token_secret_ref
    if secret is None:
        return []
    reference = {"name": secret.name, "key": secret.key}
    return [{"name": TOKEN, "valueFrom": {"secretKeyRef": reference}}]


def _serving(plan: PodPlan) -> list[Object]:
    """Return the worker's variables: it loads the fetched weights and never asks the hub."""
    offline = {"name": OFFLINE, "value": "1"}
    return [offline] if plan.discovery is None else [offline, *environment(plan.discovery)]


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
    """Return the name of the claim that the operator makes for a role's cache."""
    return f"{role_name(owner.name, role)}-cache"


def _affinity(owner: Owner, plan: PodPlan) -> Object:
    """Return the affinity of drafts to targets: a link's round trip delays every draft token."""
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
    return [] if plan.discovery is None else [RENDEZVOUS_CONTAINER_PORT]


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
