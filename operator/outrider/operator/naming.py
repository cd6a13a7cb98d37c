"""Names that users and other programs see: the API, its labels, the workers of a service.

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


def target_name(service: str, replica: int) -> str:
    """Name of one target replica of a service; replicas count from 0."""
    return f"{service}-target-{replica}"


def draft_name(service: str, replica: int) -> str:
    """Name of one draft replica of a service; replicas count from 0."""
    return f"{service}-draft-{replica}"
