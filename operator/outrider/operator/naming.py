"""Names that users and other programs see: the API, its labels, the children of a service.

Pure strings; the operator and `outrider run` decide what a name stands for.
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
"""Reporting controller of events."""
CONTAINER = "main"
"""The container of a pod that runs the worker."""
DRAFT_CONTAINER = "draft"
"""The container of a target's pod that runs its draft, where `draft.placement` is SamePod."""

COMPONENT_LABEL = "app.kubernetes.io/component"
SERVICE_LABEL = f"{GROUP}/service"
ROLE_LABEL = f"{GROUP}/role"
REVISION_LABEL = f"{GROUP}/revision"
"""Hash of a role's pod template; changes with every rollout."""
DRAFTS_LABEL = f"{GROUP}/drafts-of"
"""Label of a target's pods: the service whose drafts it links to, where that is another."""
SETTINGS_ANNOTATION = f"{GROUP}/settings"
"""Names of the ConfigMaps that a pod starts from, with a comma between two."""
IDENTITY_ANNOTATION = f"{GROUP}/identity"
"""DNS name in the certificate of a pod's worker; pods without it have none."""
OPERATOR_IDENTITY = "operator.outrider"
"""DNS name in the operator's own certificate; no service has one of two parts."""
DIGEST_ANNOTATION = f"{GROUP}/digest"
"""Hash of an object as it was applied: a field that is no longer wanted changes it."""
REPLICAS_ANNOTATION = f"{GROUP}/replicas"
"""Number of replicas that a role is to have, where its object has another one for a while: more in
a LeaderWorkerSet that rolls, fewer where the role's kind of object changes."""
PROGRESS_ANNOTATION = f"{GROUP}/progress-seconds"
"""Longest time for a group of a rollout to get ready."""
WORKER_INDEX = "leaderworkerset.sigs.k8s.io/worker-index"
"""Label by which a LeaderWorkerSet numbers the pods of a group."""
WORKER_GROUP = "leaderworkerset.sigs.k8s.io/group-index"
"""Label by which a LeaderWorkerSet numbers its groups."""
GROUP_SIZE = "leaderworkerset.sigs.k8s.io/size"
"""Annotation by which a LeaderWorkerSet gives the pods of a group their number."""
DELETION_COST = "controller.kubernetes.io/pod-deletion-cost"
"""Annotation by which a ReplicaSet that shrinks chooses its pods: the lowest number goes first."""
CLAIM_NAME = "outrider-claim"
"""Name of the Lease by which one operator alone looks after a namespace."""
RIVAL_ANNOTATION = f"{GROUP}/rival"
"""On that Lease: the operator that wants the namespace too."""
SETTINGS_KEY = "settings.json"
"""Key of a worker's settings in their ConfigMap."""
POLICY_KEY = "policy.json"
"""Key of the policy in force in the ConfigMap `intent_name`."""
MEMORY_KEY = "memory.json"
"""Key of the control loop's memory in that ConfigMap."""
RESTARTED_ANNOTATION = f"{GROUP}/restarted-at"
"""On a service, and on its pods as they were made: another value replaces the pods."""
PROBE_ANNOTATION = f"{GROUP}/probe-at"
"""On a service: another value has drafting that does not pay tried again."""
MANAGED_BY = "app.kubernetes.io/managed-by"
SELECTOR = f"{MANAGED_BY}={FIELD_MANAGER}"
"""Selects everything that the operator made."""


def labels(service: str, role: str = "") -> dict[str, str]:
    """Return the labels of a child; those of `selector` are among them."""
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
    """Return the labels that select the pods of one role; they never change."""
    return {SERVICE_LABEL: service, ROLE_LABEL: role}


def group_labels(role: str) -> dict[str, str]:
    """Return the labels of pods of which several are a replica, disjoint from `single_labels`."""
    return {COMPONENT_LABEL: f"{role}-group"}


def single_labels(role: str) -> dict[str, str]:
    """Return the labels of pods that are a replica each, beside those of `selector`."""
    return {COMPONENT_LABEL: role}


def member_names(group: str, pods: int) -> tuple[str, ...]:
    """Return the names of the pods of a LeaderWorkerSet's group, the leader's first."""
    return (group, *(f"{group}-{number}" for number in range(1, pods)))


def selector_text(labels: Mapping[str, str]) -> str:
    """Return labels as the subresource `/scale` takes them."""
    return ",".join(f"{key}={value}" for key, value in labels.items())


def role_name(service: str, role: str) -> str:
    """Return the name of one role's workload, budget, network policy and scaler."""
    return f"{service}-{role}"


def headless_name(service: str, role: str) -> str:
    """Return the name of the Service whose addresses are one role's pods."""
    return f"{service}-{role}s"


def intent_name(service: str) -> str:
    """Return the name of the ConfigMap with the policy in force and the control loop's memory."""
    return f"{service}-intent"


def certificate_name(service: str, role: str) -> str:
    """Return the name of the Secret with the certificate of one role's pods."""
    return f"{role_name(service, role)}-certificate"


def issued_name(service: str, role: str) -> str:
    """Return the name of the Certificate of one role's pods, and of the Secret that cert-manager
    writes for it; not that of the operator's own Secret, or both would write one."""
    return f"{role_name(service, role)}-issued"


def identity(namespace: str, service: str, role: str) -> str:
    """Return the DNS name in the certificates of one role's pods: no other service's is the
    same."""
    return f"{role}.{service}.{namespace}.outrider"


def restart_command(namespace: str, service: str) -> str:
    """Return the command that has a service's pods replaced by those that the operator makes."""
    at = f"{RESTARTED_ANNOTATION}=$(date -Iseconds)"
    return f"kubectl annotate {KIND.lower()} {service} -n {namespace} {at} --overwrite"


def target_name(service: str, replica: int) -> str:
    """Return the name of one target replica; replicas count from 0."""
    return f"{service}-target-{replica}"


def draft_name(service: str, replica: int) -> str:
    """Return the name of one draft replica; replicas count from 0."""
    return f"{service}-draft-{replica}"
