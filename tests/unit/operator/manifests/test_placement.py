"""Where pods want to run: drafts near the targets that answer, targets away from each other."""

import pytest

from outrider.contract.settings import Role
from outrider.operator.cluster.interfaces import Object
from outrider.operator.cluster.kinds import LEADER_WORKER_SET
from outrider.operator.manifests.desired import Platform, desired
from outrider.operator.naming import WORKER_INDEX, selector
from tests.unit.operator.golden import arguments
from tests.unit.operator.manifests.test_manifests import made, pod, service_of, spec

TARGETS = selector("chat", Role.TARGET)
TWO_NODES = ", parallelism: {tensor: 2, nodes: 2}"


def near(target: str = "", draft: str = "", rest: str = "") -> Object:
    """What a draft's pods want to be near."""
    platform = Platform(image="w:1", kinds=frozenset({LEADER_WORKER_SET}))
    service = service_of(spec(target, draft, rest))
    objects = desired(*arguments(service, {}), platform).objects
    (found,) = (one for one in objects if one["metadata"]["name"] == "chat-draft"
                and one["kind"] == "Deployment")  # fmt: skip
    affinity: Object = found["spec"]["template"]["spec"]["affinity"]["podAffinity"]
    return affinity


@pytest.mark.parametrize(
    ("target", "leaders"),
    [
        ("", {}),
        (TWO_NODES, {WORKER_INDEX: "0"}),
        (", parallelism: {pipeline: 3}", {WORKER_INDEX: "0"}),
    ],
)
def test_drafts_want_to_be_near_the_pods_at_which_links_end(
    target: str, leaders: dict[str, str]
) -> None:
    required = "requiredDuringSchedulingIgnoredDuringExecution"
    (term,) = near(target, rest="topology: {policy: Required}")[required]
    assert term["labelSelector"]["matchLabels"] == {**TARGETS, **leaders}
    (wish,) = near(target)["preferredDuringSchedulingIgnoredDuringExecution"]
    assert wish["podAffinityTerm"]["labelSelector"] == term["labelSelector"]


@pytest.mark.parametrize("draft", ["", ", placement: SamePod", ", placement: Colocated"])
def test_targets_are_shared_out_over_machines_and_zones_where_there_is_room(draft: str) -> None:
    apart = pod(made(spec(draft=draft)))["affinity"]["podAntiAffinity"]
    assert apart.keys() == {"preferredDuringSchedulingIgnoredDuringExecution"}
    terms = [wish["podAffinityTerm"] for wish in apart.popitem()[1]]
    keys = ["kubernetes.io/hostname", "topology.kubernetes.io/zone"]
    assert [term["topologyKey"] for term in terms] == keys
    assert [term["labelSelector"]["matchLabels"] for term in terms] == [TARGETS, TARGETS]


def test_pods_of_one_replica_are_not_driven_apart_nor_drafts_from_their_targets() -> None:
    objects = made(spec(TWO_NODES))
    (group,) = (one for (kind, _), one in objects.items() if kind == "LeaderWorkerSet")
    template = group["spec"]["leaderWorkerTemplate"]["workerTemplate"]
    assert "affinity" not in template["spec"]
    assert "podAntiAffinity" not in pod(objects, "draft")["affinity"]


def test_a_template_may_take_the_wish_away() -> None:
    text = spec(", podTemplate: {spec: {affinity: {podAntiAffinity: null}}}")
    assert pod(made(text))["affinity"] == {}
