"""Labels and annotations by which schedulers of others find workloads, and not their pods alone.

A role's `podTemplate` names them once: what Kueue reads on a Deployment or a LeaderWorkerSet, and
the latter's own controller on that, goes on the workload too.
"""

from outrider.operator.manifests.child import Object

READ_ON_WORKLOADS = (
    "kueue.x-k8s.io/",
    "leaderworkerset.sigs.k8s.io/exclusive-topology",
    "leaderworkerset.sigs.k8s.io/subgroup-exclusive-topology",
)
"""Beginnings of their keys."""


def queued(workload: Object, template: Object) -> Object:
    """Return a workload with what its pod template says to queues."""
    for words in ("labels", "annotations"):
        said = template["metadata"][words]
        read = {key: said[key] for key in said if key.startswith(READ_ON_WORKLOADS)}
        workload["metadata"][words] |= read
    return workload
