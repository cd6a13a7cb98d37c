"""Replicas on several machines where the real controller of LeaderWorkerSets runs.

Its webhooks admit the operator's objects, it makes StatefulSets, the real controller-manager makes
pods of them. Nothing runs in those but where a test has fake workers.
"""

import contextlib
import json
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tools import crds

from outrider.contract.process import ENV_LEADER, ENV_NODE, ENV_NODES
from outrider.contract.settings import Role, WorkerSettings
from outrider.operator.cluster.differences import digest
from outrider.operator.cluster.kinds import (
    CONFIG_MAP,
    DEPLOYMENT,
    INSTALL_LWS,
    LEADER_WORKER_SET,
    NETWORK_SERVICE,
    POD,
    SERVICE,
    STATEFUL_SET,
    ObjectKind,
)
from outrider.operator.naming import (
    DIGEST_ANNOTATION,
    FIELD_MANAGER,
    REPLICAS_ANNOTATION,
    REVISION_LABEL,
    WORKER_GROUP,
    WORKER_INDEX,
    member_names,
    role_name,
)
from outrider.operator.observed.pods import pod as read_pod
from tests.kube import pod_files
from tests.kube.applied_fields import applied
from tests.kube.conftest import OPERATORS, lone_operator
from tests.kube.control_plane import ControlPlane
from tests.kube.leader_worker_sets import LeaderWorkerSets
from tests.kube.nodes import node
from tests.kube.operator_process import OperatorProcess, Operators
from tests.kube.pod_probes import PodProbes
from tests.kube.pod_workers import PodWorker, PodWorkers
from tests.kube.space import Object, Refused, Space, service
from tests.kube.test_drift import assert_nobody_asks
from tests.merge_patch import laid_over

LONGEST = "a" * 40
"""The longest name that a service may have."""
REVISION = ObjectKind("apps", "v1", "ControllerRevision", "controllerrevisions")
SLICES = ObjectKind("discovery.k8s.io", "v1", "EndpointSlice", "endpointslices")
LEFT = (LEADER_WORKER_SET, STATEFUL_SET, REVISION, NETWORK_SERVICE, SLICES, POD)
"""Kinds of which nothing is left of a service."""
TWO = {"tensor": 2, "nodes": 2}
NO_ROOM = {"requests": {"cpu": "1000"}}
SET_NAME = "leaderworkerset.sigs.k8s.io/name"
CRASHED: Object = {
    "containerStatuses": [
        {
            "name": "main",
            "image": "worker:2",
            "imageID": "",
            "ready": False,
            "restartCount": 1,
            "state": {"terminated": {"exitCode": 2}},
        }
    ],
}
"""What a kubelet says of a pod whose worker ends."""
REFUSAL = "settings.pipeline.stages: 3 is not allowed; the model has 2 layers"
REFUSED: Object = {
    "initContainerStatuses": [
        {
            "name": "prepare",
            "image": "none",
            "imageID": "",
            "ready": False,
            "restartCount": 0,
            "state": {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 10s"}},
            "lastState": {
                "terminated": {
                    "exitCode": 2,
                    "reason": "Error",
                    "message": json.dumps({"error": REFUSAL}) + "\n",
                }
            },
        }
    ],
    "conditions": [{"type": "Ready", "status": "False"}],
}
"""What a kubelet says of a pod whose container prepare has ended, before it starts that again."""
EXAMPLE = Path(__file__).parents[2] / "examples" / "pipeline.yaml"
GATE = "MaxUnavailableStatefulSet"
APPLY = "application/apply-patch+yaml"


@pytest.fixture(scope="module")
def shared(
    leader_worker_sets: LeaderWorkerSets,
    control_plane: ControlPlane,
    definitions: None,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Operators]:
    """A namespace with one operator, which has found the kind."""
    with lone_operator(control_plane, tmp_path_factory.mktemp("operator")) as operators:
        yield operators


@pytest.fixture
def operator(shared: Operators) -> OperatorProcess:
    """That one."""
    return shared.all[0]


@pytest.fixture
def namespace(shared: Operators) -> str:
    """The operator's."""
    return shared.namespace


@pytest.fixture
def space(
    shared: Operators, operator: OperatorProcess, request: pytest.FixtureRequest
) -> Iterator[Space]:
    """Where the only service is; nothing is left of it, and nobody has deleted but the service."""
    request.node.stash[OPERATORS] = shared
    space = Space(shared.control_plane, shared.namespace)
    yield space
    assert "Traceback" not in operator.said
    for one in space.items(SERVICE):
        space.delete(SERVICE, one["metadata"]["name"])
    space.until(lambda: not left(space), "nothing is left of it")


def left(space: Space) -> list[str]:
    return [f"{k.name} {one['metadata']['name']}" for k in LEFT for one in space.items(k)]


def described(space: Space, name: str = "chat", **target: Any) -> None:
    """A target on two machines, and no draft; waits until it is complete."""
    begun(space, name, **target)
    complete(space, target.get("replicas", 1), name)


def begun(space: Space, name: str = "chat", **target: Any) -> None:
    """The same; does not wait until its pods are as it says."""
    wanted = service(name, draft=None, target=laid_over({"parallelism": TWO}, target))
    if space.get(SERVICE, name) is None:
        space.create(SERVICE, wanted)
    else:
        space.replace(SERVICE, name, wanted["spec"])
    space.until_seen(name)


def complete(space: Space, replicas: int, name: str = "chat") -> None:
    """Waits until so many replicas serve, each counted once, and no more are there."""

    def so() -> bool:
        said = space.status(name)["target"]
        served = (said["ready"], said["replicas"]) == (f"{replicas}/{replicas}", replicas)
        return served and space.condition(name, "Progressing")["reason"] == "Complete"

    space.until(so, f"{replicas} serve")
    space.until_condition(name, "Ready", "True", "Serving")
    space.until_condition(name, "Degraded", "False", "AsExpected")


def whole(space: Space, name: str = "chat") -> Object:
    return space.there(LEADER_WORKER_SET, role_name(name, Role.TARGET))


def pods(space: Space) -> dict[str, Object]:
    """Of targets that stay, by name."""
    return {pod["metadata"]["name"]: pod for pod in space.pods(Role.TARGET)}


def uids(space: Space) -> dict[str, str]:
    return {name: pod["metadata"]["uid"] for name, pod in pods(space).items()}


@contextlib.contextmanager
def kept(space: Space, pod: str) -> Iterator[None]:
    """Keeps a pod that is deleted meanwhile, as a kubelet does until its containers have ended.

    kwok removes it at once, so that the controller of LeaderWorkerSets may never see that it ends,
    and then makes no new group.
    """
    strategic = "application/strategic-merge-patch+json"
    ours = "outrider.dev/kept-by-a-test"
    space.patch(POD, pod, {"metadata": {"finalizers": [ours]}}, strategic)
    yield
    gone = {"metadata": {"$deleteFromPrimitiveList/finalizers": [ours]}}
    space.patch(POD, pod, gone, strategic)


def image(pod: Object) -> str:
    return str(pod_files.container_of(pod, "main")["image"])


def points(space: Space, name: str) -> list[Object]:
    """Addresses behind a Service."""
    slices = space.items(SLICES)
    mine = [s for s in slices if s["metadata"]["labels"]["kubernetes.io/service-name"] == name]
    return [point for one in mine for point in one.get("endpoints") or ()]


def answering(space: Space, name: str = "chat") -> set[str]:
    """Names of ready pods behind the service."""
    found = points(space, name)
    return {p["targetRef"]["name"] for p in found if p["conditions"]["ready"]}


def watched(space: Space, holds: Callable[[], bool], what: str) -> None:
    """Waits until `holds`; whenever it asks, somebody answers."""
    silent: list[Object] = []

    def asked() -> bool:
        if not answering(space):
            silent.append(space.status("chat"))
        return holds()

    space.until(asked, what)
    assert not silent, "a group answers all the time"


def test_its_webhooks_change_nothing_that_the_operator_sets_and_nobody_writes_it_again(
    space: Space, operator: OperatorProcess
) -> None:
    described(space)
    live = whole(space)
    said = applied(live)
    assert digest({"spec": said["spec"]}) == live["metadata"]["annotations"][DIGEST_ANNOTATION]
    assert live["spec"]["networkConfig"] == {"subdomainPolicy": "Shared"}, "they have been asked"
    assert "networkConfig" not in said["spec"]
    # What a server or a webhook rewrites is told apart from what somebody has changed.
    described(space, resources={"requests": {"cpu": "0.5"}})
    version = whole(space)["metadata"]["resourceVersion"]
    again = {**applied(whole(space)), "apiVersion": LEADER_WORKER_SET.api_version}
    again["kind"] = LEADER_WORKER_SET.name
    again["metadata"] |= {"name": "chat-target"}
    path = LEADER_WORKER_SET.at(space.namespace, "chat-target")
    query = f"?fieldManager={FIELD_MANAGER}&force=true"
    with space.control_plane.open(path + query, 30, "PATCH", again, APPLY) as answer:
        assert json.load(answer)["metadata"]["resourceVersion"] == version, "nothing is new"
    for number in range(3):
        wanted = operator.passes + 1
        space.patch(SERVICE, "chat", {"metadata": {"annotations": {"note": str(number)}}})
        space.until(partial(passed, operator, wanted), "a pass that somebody has asked for")
    operator.restart()  # it has forgotten what the server made of its objects
    operator.wait_for_passes(3)
    assert_nobody_asks(operator)
    assert whole(space)["metadata"]["resourceVersion"] == version


def passed(operator: OperatorProcess, passes: int) -> bool:
    return operator.passes >= passes


@pytest.mark.parametrize("name", ["chat", LONGEST])
def test_names_labels_variables_and_addresses_are_those_that_workers_count_on(
    name: str, space: Space
) -> None:
    described(space, name, replicas=2)
    sets = {one["metadata"]["name"]: one["spec"] for one in space.items(STATEFUL_SET)}
    target = role_name(name, Role.TARGET)
    groups = [f"{target}-0", f"{target}-1"]
    assert {n: spec["replicas"] for n, spec in sets.items()} == {
        target: 2,
        groups[0]: 1,
        groups[1]: 1,
    }
    assert space.get(DEPLOYMENT, target) is None
    every = pods(space)
    assert sorted(every) == sorted(n for group in groups for n in member_names(group, 2))
    hosts = lambda: {p["hostname"] for p in points(space, target)}  # noqa: E731
    space.until(lambda: hosts() == {*every}, "its own Service names all of them")
    for group in groups:
        leader, follower = (every[member] for member in member_names(group, 2))
        for number, raw in enumerate((leader, follower)):
            read = read_pod(raw)
            assert (read.group, read.number, read.size, read.ready) == (group, number, 2, True)
            assert raw["metadata"]["labels"][SET_NAME] == target
            assert f"{target}-{raw['metadata']['labels'][WORKER_GROUP]}" == group
            assert raw["spec"]["subdomain"] == target
            assert raw["spec"]["hostname"] == raw["metadata"]["name"]
            told = pod_files.environment(raw)
            address = f"{group}.{target}.{space.namespace}"
            assert told["LWS_LEADER_ADDRESS"] == told[ENV_LEADER] == address
            assert told["LWS_GROUP_SIZE"] == told[ENV_NODES] == "2"
            assert told["LWS_WORKER_INDEX"] == told[ENV_NODE] == str(number)
    space.until(lambda: answering(space, name) == {*groups}, "both leaders, and no follower")


def test_pods_that_are_not_ready_have_names_too(space: Space) -> None:
    begun(space, resources=NO_ROOM)
    space.until(lambda: len(pods(space)) == 2, "the follower does not wait for its leader")
    named = space.there(NETWORK_SERVICE, "chat-target")["spec"]
    assert named["clusterIP"] == "None"
    assert named["publishNotReadyAddresses"] is True


def staged(space: Space, workers: PodWorkers) -> PodProbes:
    """A target of three stages, whose workers have met."""
    target = {"parallelism": {"pipeline": 3}, "pipeline": {"cut": [4, 4, 4]}}
    space.create(SERVICE, service("chat", draft=None, target=target))
    probes = PodProbes(space, workers, Role.TARGET)
    probes.until(lambda: serve(space), "they have met", pods=3)
    return probes


def serve(space: Space) -> bool:
    return bool(space.status("chat").get("target", {}).get("ready") == "1/1")


def stages(workers: PodWorkers) -> dict[str, PodWorker]:
    """By name, in their order."""
    return {one.name: one for one in sorted(workers.of(Role.TARGET), key=lambda one: one.name)}


def test_stages_meet_at_the_addresses_that_they_are_given(
    space: Space, workers: PodWorkers
) -> None:
    staged(space, workers)
    lives = {name: one.lives for name, one in stages(workers).items()}
    assert lives == dict.fromkeys(member_names("chat-target-0", 3), 1)
    assert [bool(one.pushed) for one in stages(workers).values()] == [False] * 3, "it has no draft"
    (found,) = (one for one in space.items(CONFIG_MAP) if "settings.json" in one.get("data", {}))
    settings = WorkerSettings.from_json(found["data"]["settings.json"])
    assert (settings.pipeline.stages, settings.pipeline.cut) == (3, (4, 4, 4))


def test_the_example_of_a_pipeline_gets_ready_and_linked(space: Space, workers: PodWorkers) -> None:
    space.kubectl("apply", "-f", str(EXAMPLE))
    name = "smollm2-pipeline"
    probes = PodProbes(space, workers, Role.TARGET)
    probes.until(lambda: space.status(name).get("target", {}).get("ready") == "1/1", "it serves")
    linked = lambda: space.condition(name, "LinkEstablished")["status"] == "True"  # noqa: E731
    probes.until(linked, "it is linked; a stage may be unready once more before")
    told = {(r["kind"], r["name"]) for r in space.status(name)["resources"]}
    assert ("LeaderWorkerSet", f"{name}-target") in told


@pytest.mark.parametrize("number", [0, 1, 2])
def test_a_stage_that_dies_ends_its_group_and_all_begin_again(
    number: int, space: Space, workers: PodWorkers
) -> None:
    """Nobody tells the controller that a container has ended: the stages do it by themselves."""
    probes = staged(space, workers)
    name, worker = list(stages(workers).items())[number]
    worker.kill()
    place = f"stage {number + 1} of 3 ({name}): not ready"
    found: dict[str, Object] = {}

    def named() -> bool:
        """True if it is; keeps all conditions of that moment, for the stage may come back."""
        found.update({one["type"]: one for one in space.status("chat")["conditions"]})
        return place in str(found["TargetAvailable"].get("message"))

    probes.until(named, "the stage is named")
    assert found["Ready"]["status"] == "False"
    begun = lambda: all(one.lives > 1 for one in stages(workers).values())  # noqa: E731
    probes.until(begun, "each of them begins again, not the one alone")
    probes.until(lambda: serve(space), "they have met again", pods=3)


def test_a_model_with_too_few_layers_is_said_with_both_numbers(space: Space) -> None:
    space.create(SERVICE, service("chat", draft=None, target={"parallelism": {"pipeline": 3}}))
    space.until_condition("chat", "TargetAvailable", "True")  # kwok has said its word of each pod
    space.report_pod("chat-target-0-1", REFUSED)
    ended = f"prepare ended with exit code 2; it ended with: {REFUSAL}"
    words = f"stage 2 of 3 (chat-target-0-1): {ended}"
    lack = lambda: str(space.condition("chat", "TargetAvailable").get("message"))  # noqa: E731
    space.until(lambda: words in lack(), "the worker is quoted")
    found = space.until_condition("chat", "Degraded", "True", "PodsFailing")
    assert REFUSAL in found["message"]


def nodes_of(space: Space, role: Role) -> dict[str, str]:
    """Where the pods of a role run, so far, by their names."""
    every = {pod["metadata"]["name"]: pod["spec"].get("nodeName") for pod in space.pods(role)}
    return {name: node for name, node in every.items() if node}


def test_drafts_run_where_the_leader_of_a_group_does(space: Space) -> None:
    gpus = {"device": "GPU"}
    target = {"parallelism": {"tensor": 12, "nodes": 2}, "engine": gpus}  # 6 of the 8 of each node
    draft = {"replicas": 2, "scaling": {"mode": "Static"}, "engine": gpus}
    near = {"policy": "Required"}
    space.create(SERVICE, service("chat", target=target, draft=draft, topology=near))
    everywhere = lambda: all(len(nodes_of(space, role)) == 2 for role in Role)  # noqa: E731
    space.until(everywhere, "both pods of the target and both drafts have a node")
    targets = nodes_of(space, Role.TARGET)
    assert len({*targets.values()}) == 2
    assert {*nodes_of(space, Role.DRAFT).values()} == {targets["chat-target-0"]}


@pytest.mark.parametrize("replicas", [1, 2])
def test_a_roll_out_goes_group_by_group_and_somebody_answers_all_the_time(
    replicas: int, space: Space
) -> None:
    described(space, replicas=replicas)
    space.until(lambda: len(answering(space)) == replicas, "all answer")
    before = uids(space)
    begun(space, replicas=replicas, image="worker:2")

    def rolled() -> bool:
        now = pods(space)
        images = {image(pod) for pod in now.values()}
        return len(now) == 2 * replicas and images == {"worker:2"}

    watched(space, rolled, "all pods are new")
    complete(space, replicas)
    space.until(lambda: uids(space).keys() == before.keys(), "as many as there were")
    assert not {*uids(space).values()} & {*before.values()}
    assert whole(space)["spec"]["replicas"] == replicas
    assert REPLICAS_ANNOTATION not in whole(space)["metadata"]["annotations"]


def test_a_roll_out_has_begun_before_the_controller_has_seen_the_change(
    space: Space, leader_worker_sets: LeaderWorkerSets
) -> None:
    described(space)
    old = space.status("chat")["target"]["revision"]
    leader_worker_sets.forbid()
    try:
        begun(space, image="worker:2")
        template = whole(space)["spec"]["leaderWorkerTemplate"]["workerTemplate"]
        assert template["metadata"]["labels"][REVISION_LABEL] != old
        space.until_condition("chat", "Progressing", "True", "RollingOut")
        assert whole(space)["status"]["updatedReplicas"] == 1, "all is new, says the controller"
    finally:
        leader_worker_sets.permit()
    complete(space, 1)


def test_a_revision_that_has_no_room_fails_and_the_old_group_serves_on(space: Space) -> None:
    described(space)
    space.until(lambda: answering(space) == {"chat-target-0"}, "it answers")
    before = uids(space)
    begun(space, resources=NO_ROOM, update={"progressSeconds": 3})
    failed = lambda: space.condition("chat", "Degraded")["reason"] == "RolloutFailed"  # noqa: E731
    watched(space, failed, "the rollout has failed")
    message = space.condition("chat", "Degraded")["message"]
    assert "ready within 3 s; machine 1 of 2 (chat-target-1)" in message
    assert "Insufficient cpu" in message, "the scheduler is quoted"
    assert space.condition("chat", "TargetAvailable")["status"] == "True", "the old group serves"
    assert before.items() <= uids(space).items()
    begun(space)
    watched(space, lambda: uids(space) == before, "undone, nothing is left of it")
    complete(space, 1)
    assert uids(space) == before


def test_a_revision_whose_containers_end_again_and_again_fails(space: Space) -> None:
    """Its groups are made anew each time, so that none of their pods is ever old. Those have no
    room either: kwok would say of each that it is ready."""
    described(space)
    before = uids(space)
    new = {"image": "worker:2", "resources": NO_ROOM}
    begun(space, **new, update={"progressSeconds": 6})
    ended: set[str] = set()

    def failed() -> bool:
        for name, pod in pods(space).items():
            if image(pod) == "worker:2" and pod["metadata"]["uid"] not in ended:
                ended.add(pod["metadata"]["uid"])
                with contextlib.suppress(Refused):  # it is gone already
                    space.report_pod(name, CRASHED)
        return bool(space.condition("chat", "Degraded")["reason"] == "RolloutFailed")

    space.until(failed, "the rollout has failed")
    assert len(ended) > 2, "the group was made anew"
    assert space.condition("chat", "TargetAvailable")["status"] == "True", "the old group serves"
    assert before.items() <= uids(space).items()
    described(space)
    assert uids(space) == before


def test_groups_are_added_and_taken_away(space: Space) -> None:
    described(space, replicas=2)
    before = uids(space)
    described(space, replicas=1)
    space.until(lambda: sorted(uids(space)) == ["chat-target-0", "chat-target-0-1"], "one is left")
    assert uids(space).items() <= before.items()
    described(space, replicas=2)
    assert len(uids(space)) == 4


@pytest.mark.parametrize("lost", ["chat-target-0", "chat-target-0-1"])
def test_a_group_that_loses_a_pod_is_made_anew_whole(lost: str, space: Space) -> None:
    described(space, replicas=2)
    before = uids(space)
    with kept(space, lost):
        space.delete(POD, lost)
        space.until(lambda: "chat-target-0" not in pods(space), "the leader ends")
    gone = {before["chat-target-0"], before["chat-target-0-1"]}
    space.until(
        lambda: len(uids(space)) == 4 and not gone & {*uids(space).values()}, "both are new"
    )
    complete(space, 2)
    after = uids(space)
    assert {name: after[name] for name in after if name.startswith("chat-target-1")} == {
        name: before[name] for name in before if name.startswith("chat-target-1")
    }, "the other group stays"


@pytest.mark.parametrize("how", ["leaders", "members", "annotation"])
def test_a_restart_replaces_all_pods_of_the_groups_that_it_names(how: str, space: Space) -> None:
    described(space, replicas=2)
    before = uids(space)
    restarted = {**before}
    if how == "leaders":
        space.kubectl("rollout", "restart", "statefulset/chat-target")
    elif how == "members":
        space.kubectl("rollout", "restart", "statefulset/chat-target-0")
        restarted = {name: uid for name, uid in before.items() if "chat-target-0" in name}
    else:
        space.kubectl("annotate", "specsvc", "chat", "outrider.dev/restarted-at=now")

    def new() -> bool:
        now = uids(space)
        return now.keys() == before.keys() and not {*now.values()} & {*restarted.values()}

    space.until(new, "all of its pods are new")
    complete(space, 2)
    after = uids(space)
    others = before.keys() - restarted.keys()
    assert {name: after[name] for name in others} == {name: before[name] for name in others}


def test_a_machine_more_or_less_is_a_roll_out(space: Space) -> None:
    described(space, parallelism={"nodes": 1})
    assert space.get(LEADER_WORKER_SET, "chat-target") is None
    space.until(lambda: bool(answering(space)), "it answers")
    begun(space)
    single = lambda: space.get(DEPLOYMENT, "chat-target") is None  # noqa: E731
    watched(space, single, "groups alone")
    complete(space, 1)
    three = {"tensor": 3, "nodes": 3}
    begun(space, parallelism=three)
    watched(space, lambda: len(pods(space)) == 3, "three machines")
    complete(space, 1)
    assert sorted(pods(space)) == sorted(member_names("chat-target-0", 3))
    begun(space, parallelism={"tensor": 2, "nodes": 1})
    watched(space, lambda: space.get(LEADER_WORKER_SET, "chat-target") is None, "one pod alone")
    complete(space, 1)
    space.until(lambda: len(pods(space)) == 1, "no pod of the group is left")


def test_an_exclusive_topology_gives_each_group_a_domain_of_its_own(space: Space) -> None:
    words = {"leaderworkerset.sigs.k8s.io/exclusive-topology": "kubernetes.io/hostname"}
    described(space, replicas=2, podTemplate={"metadata": {"annotations": words}})
    nodes = {name: pod["spec"]["nodeName"] for name, pod in pods(space).items()}
    assert nodes["chat-target-0"] == nodes["chat-target-0-1"]
    assert nodes["chat-target-1"] == nodes["chat-target-1-1"]
    assert len({*nodes.values()}) == 2


def test_what_others_do_to_it_is_undone(space: Space) -> None:
    described(space)
    before = whole(space)["spec"]
    edit = {"replicas": 3, "startupPolicy": "LeaderReady"}
    space.patch(LEADER_WORKER_SET, "chat-target", {"spec": edit})
    space.until(lambda: whole(space)["spec"] == before, "it is as it was")
    complete(space, 1)
    first = whole(space)["metadata"]["uid"]
    space.delete(LEADER_WORKER_SET, "chat-target")

    def anew() -> bool:
        live = space.get(LEADER_WORKER_SET, "chat-target")
        return live is not None and live["metadata"]["uid"] != first

    space.until(anew, "there is another")
    complete(space, 1)
    owners = space.there(STATEFUL_SET, "chat-target")["metadata"]["ownerReferences"]
    assert [one["uid"] for one in owners] == [whole(space)["metadata"]["uid"]]
    leaders = [p for p in pods(space).values() if p["metadata"]["labels"][WORKER_INDEX] == "0"]
    assert [p["metadata"]["name"] for p in leaders] == ["chat-target-0"]


def test_a_cluster_that_comes_to_serve_them_is_noticed(tmp_path: Path) -> None:
    """The operator says what is missing, leaves what runs alone, and ends once it is there, so that
    its pod starts one which watches it."""
    folder = tmp_path / "bare"
    folder.mkdir()
    with ControlPlane.started(folder) as bare:
        bare.apply(node("node-0"))
        bare.kubectl("apply", "--server-side", "-f", str(crds.FOLDER))
        bare.kubectl("wait", "--for=condition=Established", "crd", "--all", "--timeout=60s")
        bare.create_namespace("models")
        operator = Operators(bare, tmp_path, "models").start()
        operator.wait_until_leading()
        space = Space(bare, "models")
        begun(space, parallelism={"nodes": 1})
        space.until_condition("chat", "Ready", "True", "Serving")
        begun(space, parallelism=TWO, update={"strategy": "Recreate"})
        found = space.until_condition("chat", "Stalled", "True", "Forbidden")
        assert found["message"].startswith("LeaderWorkerSet chat-target: replicas of several pods")
        assert found["message"].endswith(INSTALL_LWS)
        assert space.condition("chat", "TargetAvailable")["status"] == "True", "what ran serves on"
        with LeaderWorkerSets.running(bare, folder):
            space.until(lambda: not operator.alive, "the process ends")
            assert operator.status == 0
            operator.restart()
            complete(space, 1)
            assert space.get(DEPLOYMENT, "chat-target") is None
            operator.end()


def test_pods_are_made_where_the_server_takes_no_bound_of_0_of_a_stateful_set(
    tmp_path: Path,
) -> None:
    folder, options = tmp_path / "gated", (f"--feature-gates={GATE}=true",)
    folder.mkdir()
    with ControlPlane.started(folder, controllers=False, api_options=options) as gated:
        gated.kubectl("apply", "--server-side", "-f", str(crds.FOLDER))
        gated.kubectl("wait", "--for=condition=Established", "crd", "--all", "--timeout=60s")
        gated.kubectl("create", "serviceaccount", "default")
        with LeaderWorkerSets.running(gated, folder):
            operator = Operators(gated, tmp_path, "default").start()
            operator.wait_until_leading()
            space = Space(gated, "default")
            for replicas in (1, 2):
                begun(space, replicas=replicas)
                space.until(partial(leads, space, replicas), "so many leaders are wanted")
            operator.end()


def leads(space: Space, groups: int) -> bool:
    live = space.get(STATEFUL_SET, "chat-target")
    return live is not None and live["spec"]["replicas"] == groups
