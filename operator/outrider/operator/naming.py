"""Names that users and other programs see: the API, its labels, the children of a service.

Pure strings; leaves it to each hand what a name stands for (a process or a Kubernetes object).
"""

from collections.abc import Mapping

GROUP = "outrider.dev"
VERSION = "v1alpha1"
API_VERSION = f"{GROUP}/{VERSION}"
KIND = "SpeculativeService"
PLURAL = "speculativeservices"
SHORT = "specsvc"
SCALER_KIND = "SpeculativeRoleScaler"
SCALER_PLURAL = "speculativerolescalers"
SCALER_SHORT = "specscaler"
FIELD_MANAGER = "outrider-operator"
"""Owner of every field that the operator applies."""
MANAGER = f"{GROUP}/operator"
"""Who says what events report."""
MAX_IN_GROUP = 29
"""Characters of a service's name in that of a group: a StatefulSet's may have 52, for its pods bear
it in a label together with a hash."""
CONTAINER = "main"
"""The container of a pod that runs the worker."""

COMPONENT_LABEL = "app.kubernetes.io/component"
SERVICE_LABEL = f"{GROUP}/service"
ROLE_LABEL = f"{GROUP}/role"
REVISION_LABEL = f"{GROUP}/revision"
"""Hash of what a role's pods are made of; changes with every roll-out."""
SETTINGS_ANNOTATION = f"{GROUP}/settings"
"""Name of the ConfigMap that a pod starts from."""
DIGEST_ANNOTATION = f"{GROUP}/digest"
"""Hash of an object as it was applied: a field that is no longer wanted changes it."""
GROUP_LABEL = f"{GROUP}/group"
"""Name of the StatefulSet whose pods are one replica."""
REPLICAS_ANNOTATION = f"{GROUP}/replicas"
"""How many groups a role is to have; no one object says it where each group has its own."""
KIND_ANNOTATION = f"{GROUP}/kind"
"""What is to keep a role's pods running."""
PROGRESS_ANNOTATION = f"{GROUP}/progress-seconds"
"""How long a group of a roll-out may take to get ready."""
SERVED_ANNOTATION = f"{GROUP}/served"
"""On a StatefulSet once all of its pods were ready: what it loses later fails no roll-out."""
POD_INDEX = "apps.kubernetes.io/pod-index"
"""Label by which Kubernetes numbers the pods of a StatefulSet."""
WORKER_INDEX = "leaderworkerset.sigs.k8s.io/worker-index"
"""Label by which a LeaderWorkerSet numbers the pods of a group."""
MANAGED_BY = "app.kubernetes.io/managed-by"
SELECTOR = f"{MANAGED_BY}={FIELD_MANAGER}"
"""Of everything that the operator made."""


def labels(service: str, role: str = "") -> dict[str, str]:
    """Labels of a child; those of `selector` are among them."""
    words = {
        "app.kubernetes.io/name": "outrider",
        "app.kubernetes.io/instance": service,
        "app.kubernetes.io/part-of": "outrider",
        MANAGED_BY: FIELD_MANAGER,
        SERVICE_LABEL: service,
    }
    if role:
        words |= {COMPONENT_LABEL: role, ROLE_LABEL: role}
    return words


def selector(service: str, role: str) -> dict[str, str]:
    """Labels that pick the pods of one role; they never change."""
    return {SERVICE_LABEL: service, ROLE_LABEL: role}


def grouped(role: str) -> dict[str, str]:
    """What pods that are several a replica are labelled with; `alone` picks none of them."""
    return {COMPONENT_LABEL: f"{role}-group"}


def alone(role: str) -> dict[str, str]:
    """Labels of pods that are a replica each, of any revision, beside those of `selector`."""
    return {COMPONENT_LABEL: role}


def selector_text(labels: Mapping[str, str]) -> str:
    """Labels as `/scale` wants them."""
    return ",".join(f"{key}={value}" for key, value in labels.items())


def role_name(service: str, role: str) -> str:
    """Name of one role's workload, budget, network policy and scaler."""
    return f"{service}-{role}"


def headless_name(service: str, role: str) -> str:
    """Name of the Service whose addresses are one role's pods."""
    return f"{service}-{role}s"


def nodes_name(service: str, role: str) -> str:
    """Name of the Service by which the pods of a role's groups find each other."""
    return f"{service}-{role}-nodes"


def group_name(service: str, role: str, revision: str, index: int) -> str:
    """Name of one group's StatefulSet; its pods' end in a number. Two services whose names begin
    alike have other revisions."""
    return f"{service[:MAX_IN_GROUP].rstrip('-')}-{role}-{revision}-{index}"


def intent_name(service: str) -> str:
    """Name of the ConfigMap with the policy in force and what the control loop remembers."""
    return f"{service}-intent"


def target_name(service: str, replica: int) -> str:
    """Name of one target replica of a service; replicas count from 0."""
    return f"{service}-target-{replica}"


def draft_name(service: str, replica: int) -> str:
    """Name of one draft replica of a service; replicas count from 0."""
    return f"{service}-draft-{replica}"
