"""A PodMonitor, for clusters that run Prometheus by its operator."""

from outrider.operator.kinds import POD_MONITOR
from outrider.operator.manifests.child import Object, Owner, child
from outrider.operator.naming import SERVICE_LABEL


def monitor(owner: Owner, seconds: int) -> Object:
    """Reads every worker's `/metrics` so often."""
    spec = {
        "selector": {"matchLabels": {SERVICE_LABEL: owner.name}},
        "podMetricsEndpoints": [{"port": "http", "path": "/metrics", "interval": f"{seconds}s"}],
    }
    return child(POD_MONITOR, owner, owner.name, spec=spec)
