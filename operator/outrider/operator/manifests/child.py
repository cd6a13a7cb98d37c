"""Common parts of all children of a service: names, labels, owner, digest, and what queues read."""

from typing import Any

from outrider.operator.cluster.differences import digest
from outrider.operator.cluster.kinds import ObjectKind
from outrider.operator.naming import DIGEST_ANNOTATION, labels
from outrider.operator.observed.owner import Owner

Object = dict[str, Any]


def child(kind: ObjectKind, owner: Owner, name: str, role: str = "", **content: Any) -> Object:
    """Return an object that `owner` owns; `content` are its top-level fields besides `metadata`."""
    return {
        "apiVersion": kind.api_version,
        "kind": kind.name,
        "metadata": {
            "name": name,
            "namespace": owner.namespace,
            "labels": labels(owner.name, role),
            "annotations": {DIGEST_ANNOTATION: digest(content)},
            "ownerReferences": [owner.reference],
        },
        **content,
    }


READ_ON_WORKLOADS = (
    "kueue.x-k8s.io/",
    "leaderworkerset.sigs.k8s.io/exclusive-topology",
    "leaderworkerset.sigs.k8s.io/subgroup-exclusive-topology",
)
"""Beginnings of labels and annotations by which schedulers of others find workloads, and not their
pods alone. A role's `podTemplate` names them once: what Kueue reads on a Deployment or a
LeaderWorkerSet, and the latter's own controller on that, goes on the workload too."""


def queued(workload: Object, template: Object) -> Object:
    """Return a workload with what its pod template says to queues."""
    for words in ("labels", "annotations"):
        said = template["metadata"][words]
        read = {key: said[key] for key in said if key.startswith(READ_ON_WORKLOADS)}
        workload["metadata"][words] |= read
    return workload
