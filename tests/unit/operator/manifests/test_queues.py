"""What a role's template says to queues stands on its workload too, where they read it."""

import pytest

from outrider.operator.cluster.interfaces import Object
from outrider.operator.cluster.kinds import LEADER_WORKER_SET
from outrider.operator.manifests.desired import Platform, desired
from tests.unit.operator.golden import arguments
from tests.unit.operator.manifests.test_manifests import service_of, spec

QUEUE = "kueue.x-k8s.io/queue-name"
TOPOLOGY = "leaderworkerset.sigs.k8s.io/exclusive-topology"
TEMPLATE = (
    f", podTemplate: {{metadata: {{labels: {{{QUEUE}: serving, mine: x}},"
    f" annotations: {{{TOPOLOGY}: rack, theirs: y}}}}}}"
)
TWO_NODES = ", parallelism: {tensor: 2, nodes: 2}"


def workload(target: str, kind: str) -> Object:
    platform = Platform(image="w:1", kinds=frozenset({LEADER_WORKER_SET}))
    objects = desired(*arguments(service_of(spec(target)), {}), platform).objects
    (found,) = (one for one in objects if one["kind"] == kind
                and one["metadata"]["labels"]["outrider.dev/role"] == "target")  # fmt: skip
    return found


@pytest.mark.parametrize(
    ("shape", "kind"),
    [("", "Deployment"), (TWO_NODES, "LeaderWorkerSet")],
)
def test_a_queue_is_named_on_workloads_and_on_pods(shape: str, kind: str) -> None:
    metadata = workload(TEMPLATE + shape, kind)["metadata"]
    assert metadata["labels"][QUEUE] == "serving"
    assert metadata["annotations"][TOPOLOGY] == "rack"
    assert "mine" not in metadata["labels"]
    assert "theirs" not in metadata["annotations"]
    plain = workload(shape, kind)["metadata"]
    assert metadata["labels"].keys() - plain["labels"].keys() == {QUEUE}
