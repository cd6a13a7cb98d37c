"""Containers of a worker in a pod, and its volumes: one prepares its model, one runs it.

A draft in its target's pod has containers and volumes of its own names beside the target's; the
cache, the policy and the folder of their link are the pod's. Leaves the pod to `pods`.
"""

import itertools
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from outrider.contract.process import CONTROL_PORT, DRAFT_HTTP_PORT, GRPC_PORT, HTTP_PORT
from outrider.contract.settings import CERTIFICATE, KEY, Role
from outrider.operator.manifests import certificates
from outrider.operator.manifests.child import Object
from outrider.operator.manifests.groups import GroupDiscovery, container_port, environment
from outrider.operator.manifests.settings import CACHE, LINK_FOLDER
from outrider.operator.naming import CONTAINER, DRAFT_CONTAINER, POLICY_KEY, SETTINGS_KEY
from outrider.operator.spec import accelerators
from outrider.operator.spec.roles import Draft, Target
from outrider.operator.spec.surroundings import ApiKeysSecretRef, TlsSecretRef

API_KEYS_FOLDER, API_KEYS_PATH = "/etc/outrider/access", "apiKeysSecretRef"
"""Where a target finds its API keys; the path names the field, and messages the path."""
API_KEYS_FILE = f"{API_KEYS_FOLDER}/{API_KEYS_PATH}"
TLS_FOLDER = "/etc/outrider/tlsSecretRef"
"""Where a target finds the certificate that it shows to clients; the path names the field."""
TLS_CERTIFICATE, TLS_KEY = f"{TLS_FOLDER}/{CERTIFICATE}", f"{TLS_FOLDER}/{KEY}"
GROUP_READS = 0o440
SETTINGS_FOLDER = "/etc/outrider/settings"
POLICY_FOLDER = "/etc/outrider/policy"
PORTS = (("grpc", GRPC_PORT), ("http", HTTP_PORT), ("control", CONTROL_PORT))
"""Names and numbers of the ports of a pod's own worker."""
PREPARE = "prepare"
DRAFT_HTTP = "draft-http"
"""Name of the port with the metrics of a draft in its target's pod."""
TOKEN = "HF_TOKEN"
OFFLINE: Object = {"name": "HF_HUB_OFFLINE", "value": "1"}
"""Variable by which a worker loads the fetched weights and never asks the hub."""
LOADING_SECONDS, PERIOD = 1800, 5
"""Seconds that every worker has to load its weights, and seconds between two probes."""
ANSWER_SECONDS = 5
"""Longest wait for an answer to a probe: a busy machine is no reason to restart a worker."""
ALIVE_FAILURES, ALIVE_PERIOD = 6, 10
"""Liveness probes in a row that fail before a worker is started again, and seconds between two: a
server that is busy for half a minute answers the ones after it."""
HUNG_SECONDS = 30
"""Seconds from SIGTERM to SIGKILL for a worker that is started again because its engine hangs, and
has no answer to finish, for which the pod's own period is there. A server that answered no probe
for a minute gets no more, and its answers are cut: nobody can tell the two apart."""
LINK_BYTES = "64Mi"
"""Most that the link's folder may hold. It takes up what is in it, and that is sockets: the memory
that two workers share has no name there, and counts as their containers'."""


@dataclass(frozen=True, slots=True)
class PodWorker:
    """One worker of a pod."""

    role: Role
    spec: Target | Draft
    image: str
    settings: str
    """Name of the ConfigMap with its settings."""
    beside: bool = False
    """True for a draft in its target's pod."""
    api_keys: ApiKeysSecretRef | None = None
    """Secret with the keys that it lets in; of targets."""
    tls: TlsSecretRef | None = None
    """Secret with the certificate that it shows to clients; of targets."""
    certificate: str = ""
    """Name of the Secret with its certificate for its peers; empty: it has none."""
    template: Mapping[str, Any] = field(default_factory=dict)
    """All that is laid over the operator's template of its pod."""

    @property
    def prefix(self) -> str:
        """Beginning of the names that must differ from those of the pod's own worker."""
        return f"{DRAFT_CONTAINER}-" if self.beside else ""


def prepare(worker: PodWorker) -> Object:
    """Return the container that fetches and converts the weights; it ends at once where the cache
    has them."""
    name = f"{worker.prefix}{PREPARE}"
    return _container(worker, name, _arguments(PREPARE), _access(worker), _mounts(worker))


def serve(worker: PodWorker, discovery: GroupDiscovery | None, linked: bool) -> Object:
    """Return the container of the pod's own worker, which probes watch; `linked`: the pod holds a
    draft too."""
    meeting = [] if discovery is None else [container_port(discovery)]
    variables = [] if discovery is None else environment(discovery)
    mounts = _serving_mounts(worker, linked)
    loading = max(LOADING_SECONDS, worker.spec.update.progress_seconds)
    return {
        **_container(worker, CONTAINER, _arguments("serve"), [OFFLINE, *variables], mounts),
        "ports": [*itertools.starmap(_port, PORTS), *meeting],
        "startupProbe": _probe(worker, "/healthz", loading // PERIOD, PERIOD),
        "readinessProbe": _probe(worker, "/readyz", 2, 2),
        "livenessProbe": {
            **_probe(worker, "/healthz", ALIVE_FAILURES, ALIVE_PERIOD),
            "terminationGracePeriodSeconds": HUNG_SECONDS,
        },
    }


def keep_draft(worker: PodWorker) -> Object:
    """Return the container of a draft in its target's pod.

    It has no probe, and its first process starts the draft again by itself: a pod is unready while
    one of its containers is down, or has a startup probe to pass, and a draft that is lost must
    cost no request. Links reach it over the pod's loopback, so it has no port for them.
    """
    mounts = _serving_mounts(worker, linked=True)
    return {
        **_container(worker, DRAFT_CONTAINER, _arguments("keep"), [OFFLINE], mounts),
        "ports": [_port(DRAFT_HTTP, DRAFT_HTTP_PORT)],
    }


def volumes(worker: PodWorker) -> list[Object]:
    """Return the volumes that are one worker's alone."""
    found: list[Object] = [
        {"name": f"{worker.prefix}settings", "configMap": {"name": worker.settings}},
        {"name": f"{worker.prefix}temporary", "emptyDir": {}},
    ]
    if worker.certificate:
        secret = {"secretName": worker.certificate, "defaultMode": GROUP_READS}
        found.append({"name": "certificates", "secret": secret})
    if worker.api_keys is not None:
        items = [{"key": worker.api_keys.key, "path": API_KEYS_PATH}]
        found.append({"name": "api-keys", "secret": _of_user(worker.api_keys.name, items)})
    if worker.tls is not None:
        items = [{"key": name, "path": name} for name in (CERTIFICATE, KEY)]
        found.append({"name": "tls", "secret": _of_user(worker.tls.name, items)})
    size = accelerators.shared_memory(worker.spec)
    if size:
        memory = {"medium": "Memory", "sizeLimit": size}
        found.append({"name": f"{worker.prefix}shared-memory", "emptyDir": memory})
    return found


def _of_user(name: str, items: list[Object]) -> Object:
    """Return the source of a volume with a Secret of the user's.

    It is optional: a pod that mounts what is not there says nothing, a target without its file ends
    and says why.
    """
    return {"secretName": name, "items": items, "optional": True, "defaultMode": GROUP_READS}


def link_volume() -> Object:
    """Return the folder in which a target and its draft meet."""
    return {"name": "link", "emptyDir": {"medium": "Memory", "sizeLimit": LINK_BYTES}}


def _container(
    worker: PodWorker, name: str, arguments: list[str], env: list[Object], mounts: list[Object]
) -> Object:
    container: Object = {
        "name": name,
        "image": worker.image,
        "args": arguments,
        "env": [
            {"name": "HOME", "value": CACHE},
            {"name": "NUMBA_CACHE_DIR", "value": f"{CACHE}/compiled"},
            *env,
        ],
        "volumeMounts": mounts,
        "terminationMessagePolicy": "FallbackToLogsOnError",  # the operator quotes its last line
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
    }
    if resources := _resources(worker):
        container["resources"] = resources  # of both: preparing takes memory too
    return container


def _resources(worker: PodWorker) -> Object:
    given = worker.spec.resources
    found: Object = given.model_dump(by_alias=True, exclude_none=True) if given else {}
    container = DRAFT_CONTAINER if worker.beside else CONTAINER
    limits = accelerators.limits(worker.spec, worker.template, container)
    return {**found, "limits": limits} if limits else found


def _arguments(command: str) -> list[str]:
    found = [command, "--settings", f"{SETTINGS_FOLDER}/{SETTINGS_KEY}"]
    policy = ["--policy", f"{POLICY_FOLDER}/{POLICY_KEY}"]
    return found if command == PREPARE else [*found, *policy]


def _mounts(worker: PodWorker) -> list[Object]:
    return [
        {"name": f"{worker.prefix}settings", "mountPath": SETTINGS_FOLDER, "readOnly": True},
        {"name": "cache", "mountPath": CACHE},
        {"name": f"{worker.prefix}temporary", "mountPath": "/tmp"},
    ]


def _serving_mounts(worker: PodWorker, linked: bool) -> list[Object]:
    mounts = [*_mounts(worker), {"name": "policy", "mountPath": POLICY_FOLDER, "readOnly": True}]
    if worker.certificate:
        folder = certificates.FOLDER
        mounts.append({"name": "certificates", "mountPath": folder, "readOnly": True})
    if worker.api_keys is not None:
        mounts.append({"name": "api-keys", "mountPath": API_KEYS_FOLDER, "readOnly": True})
    if worker.tls is not None:
        mounts.append({"name": "tls", "mountPath": TLS_FOLDER, "readOnly": True})
    if accelerators.shared_memory(worker.spec):
        mounts.append({"name": f"{worker.prefix}shared-memory", "mountPath": "/dev/shm"})
    return [*mounts, {"name": "link", "mountPath": LINK_FOLDER}] if linked else mounts


def _access(worker: PodWorker) -> list[Object]:
    """Return the Hugging Face token, for the container that fetches the weights alone."""
    secret = worker.spec.model.token_secret_ref
    if secret is None:
        return []
    reference = {"name": secret.name, "key": secret.key}
    return [{"name": TOKEN, "valueFrom": {"secretKeyRef": reference}}]


def _port(name: str, number: int) -> Object:
    return {"name": name, "containerPort": number, "protocol": "TCP"}


def _probe(worker: PodWorker, path: str, failures: int, seconds: int) -> Object:
    get: dict[str, Any] = {"path": path, "port": "http"}
    if worker.tls is not None:
        get["scheme"] = "HTTPS"  # a kubelet looks at no certificate
    return {
        "httpGet": get,
        "periodSeconds": seconds,
        "failureThreshold": failures,
        "timeoutSeconds": ANSWER_SECONDS,
    }
