"""Names that users and other programs see: the API, its labels, the children of a service.

Pure strings; leaves it to each hand what a name stands for (a process or a Kubernetes object).
"""

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
CONTAINER = "main"
"""The container of a pod that runs the worker."""

SERVICE_LABEL = f"{GROUP}/service"
ROLE_LABEL = f"{GROUP}/role"
REVISION_LABEL = f"{GROUP}/revision"
"""Hash of what a role's pods are made of; changes with every roll-out."""
SETTINGS_ANNOTATION = f"{GROUP}/settings"
"""Name of the ConfigMap that a pod starts from."""
DIGEST_ANNOTATION = f"{GROUP}/digest"
"""Hash of an object as it was applied: a field that is no longer wanted changes it."""
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
        words |= {"app.kubernetes.io/component": role, ROLE_LABEL: role}
    return words


def selector(service: str, role: str) -> dict[str, str]:
    """Labels that pick the pods of one role; they never change."""
    return {SERVICE_LABEL: service, ROLE_LABEL: role}


def selector_text(service: str, role: str) -> str:
    """The same as `/scale` wants it."""
    return ",".join(f"{key}={value}" for key, value in selector(service, role).items())


def role_name(service: str, role: str) -> str:
    """Name of one role's workload, budget, network policy and scaler."""
    return f"{service}-{role}"


def headless_name(service: str, role: str) -> str:
    """Name of the Service whose addresses are one role's pods."""
    return f"{service}-{role}s"


def intent_name(service: str) -> str:
    """Name of the ConfigMap with the policy in force and what the control loop remembers."""
    return f"{service}-intent"


def target_name(service: str, replica: int) -> str:
    """Name of one target replica of a service; replicas count from 0."""
    return f"{service}-target-{replica}"


def draft_name(service: str, replica: int) -> str:
    """Name of one draft replica of a service; replicas count from 0."""
    return f"{service}-draft-{replica}"
