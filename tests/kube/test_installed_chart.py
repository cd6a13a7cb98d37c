"""The chart installed on a real API server, and the operator with nothing but what it gives.

Has a control plane of its own: the operator looks after all namespaces there, and the definitions
are Helm's.
"""

import contextlib
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from outrider.contract.settings import Role
from outrider.operator.cluster.kinds import (
    INFERENCE_POOL,
    INSTALL_LWS,
    LEADER_WORKER_SET,
    POD_MONITOR,
)
from tests.kube import audit
from tests.kube.chart import CHART, Permission, Release, only
from tests.kube.control_plane import ControlPlane, KubectlError
from tests.kube.nodes import node
from tests.kube.operator_process import OperatorProcess
from tests.kube.other_kinds import installed
from tests.kube.pod_workers import PodWorkers

EXAMPLE = Path(__file__).parents[2] / "examples" / "smollm2.yaml"
OUT_OF_MESHES = CHART / "examples" / "service-mesh.yaml"
RESTRICTED = "pod-security.kubernetes.io/enforce=restricted"
GUARD = "--enable-admission-plugins=OwnerReferencesPermissionEnforcement"
"""Refuses owner references of whoever may not update the owner's finalizers."""
STRANGER = "stranger"
"""May edit what is in the namespace `default`, but no owner's finalizers."""
SYSTEM = "outrider-system"
RELEASE_NAME = r"{.metadata.annotations.meta\.helm\.sh/release-name}"
"""What says which release an object belongs to."""
CHILDREN = "deployments,services,configmaps,serviceaccounts,networkpolicies,poddisruptionbudgets"
SETS = (LEADER_WORKER_SET.group, LEADER_WORKER_SET.plural)
UNSEEN: dict[Permission, str] = {
    ("outrider.dev", "speculativeservices/finalizers", "update"): f"asked by {GUARD}",
    ("apps", "statefulsets", "get"): "asked only where LeaderWorkerSets have pods",
    **{
        (*SETS, verb): "used only where they are served, which the last test has"
        for verb in ("get", "list", "watch", "create", "patch", "delete")
    },
}
"""Permissions that leave no trace of their own in the audit log, and why they are needed."""
FULL = """
apiVersion: outrider.dev/v1alpha1
kind: SpeculativeService
metadata: {name: full}
spec:
  target:
    model: {uri: hf://org/large}
    parallelism: {tensor: 2, nodes: 2}
    scaling: {mode: External}
    cache: {type: PersistentVolumeClaim, size: 1Gi}
  draft: {model: {uri: hf://org/small}}
  podDisruptionBudget: {mode: Enabled}
  inferencePool: {endpointPicker: {name: picker}}
"""
BARE = """
apiVersion: outrider.dev/v1alpha1
kind: SpeculativeService
metadata: {name: full}
spec:
  target:
    model: {uri: hf://org/large}
  networkPolicy: {mode: Disabled}
  podDisruptionBudget: {mode: Disabled}
  monitoring: {mode: Disabled}
"""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """A control plane that logs what is asked, guards owner references and knows PodMonitors."""
    folder = tmp_path_factory.mktemp("installed")
    options = (*audit.options(folder), GUARD)
    with ControlPlane.started(folder, api_options=options) as cluster:
        cluster.apply(node("node-0"))
        edits = ("rolebinding", STRANGER, "--clusterrole=edit", f"--user={STRANGER}")
        cluster.kubectl("create", *edits, "-n", "default")
        with installed(cluster, POD_MONITOR, INFERENCE_POOL):
            yield cluster


def make_namespace(cluster: ControlPlane, name: str) -> str:
    cluster.kubectl("create", "namespace", name)
    cluster.kubectl("label", "namespace", name, RESTRICTED)
    cluster.wait_for_account(name)
    return name


def wait_until_owners_are_known(cluster: ControlPlane) -> None:
    """The guard of owner references learns of new kinds every 30 seconds, and refuses till then."""
    owner = {"apiVersion": "outrider.dev/v1alpha1", "kind": "SpeculativeService"}
    reference = {**owner, "name": "any", "uid": "any", "blockOwnerDeletion": True}
    meta = {"name": "any", "namespace": "default", "ownerReferences": [reference]}
    owned = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta}
    create = ("create", "--dry-run=server", "-f", "-", f"--as={STRANGER}")

    def known() -> bool:
        with pytest.raises(KubectlError) as refusal:
            cluster.kubectl(*create, stdin=json.dumps(owned))
        return "you can't set finalizers on" in str(refusal.value)

    cluster.wait_until(known, "the guard of owner references knows SpeculativeService")


@contextlib.contextmanager
def running(release: Release, folder: Path) -> Iterator[OperatorProcess]:
    """The operator with the arguments of its pod and the permissions of its account."""
    wait_until_owners_are_known(release.control_plane)
    operator = OperatorProcess(
        release.control_plane, folder, release.namespace, release.arguments, release.kubeconfig()
    )
    operator.start()
    try:
        operator.wait_until_leading()
        yield operator
    finally:
        operator.end()


@contextlib.contextmanager
def busy_workers(cluster: ControlPlane, folder: Path, namespace: str) -> Iterator[PodWorkers]:
    """Workers whose targets have a request each from their first moment."""
    with PodWorkers.following(cluster, folder, namespace) as workers:
        workers.behave(Role.TARGET, running=1)
        yield workers


def wait_until_ready(cluster: ControlPlane, namespace: str, operator: OperatorProcess) -> None:
    wait = ("wait", "--for=condition=Ready", "specsvc", "--all", "--timeout=100s")
    try:
        cluster.kubectl(*wait, "-n", namespace)
    except KubectlError as error:
        raise AssertionError(f"{error}\n{operator.tail}") from error


def names(cluster: ControlPlane, namespace: str, kinds: str = CHILDREN) -> set[str]:
    """Of what the operator has made."""
    mine = ("-l", "app.kubernetes.io/managed-by=outrider-operator")
    return set(cluster.kubectl("get", kinds, "-n", namespace, *mine, "-o", "name").split())


def refusals(release: Release) -> list[audit.Asked]:
    """What the operator asked for and may not have."""
    return [one for one in audit.asked(release.control_plane.folder, release.user) if one.refused]


def used(release: Release) -> set[Permission]:
    """All permissions that the operator has used until now."""
    every = audit.asked(release.control_plane.folder, release.user)
    return {permission for one in every for permission in one.used}


@pytest.mark.slow
def test_an_operator_of_all_namespaces_makes_an_example_ready_by_its_own_permissions(
    cluster: ControlPlane, tmp_path: Path
) -> None:
    make_namespace(cluster, SYSTEM)
    models = make_namespace(cluster, "models")
    release = Release(cluster, "outrider", SYSTEM)
    assert INSTALL_LWS in release.helm("install", "--wait", "--timeout=100s")
    with pytest.raises(KubectlError, match=r"ClusterRole .* exists and cannot be imported"):
        Release(cluster, "second", SYSTEM).helm("install", "--set", "crds.install=false")
    cluster.kubectl("apply", "-f", str(EXAMPLE), "-n", models)
    with (
        busy_workers(cluster, tmp_path / "workers", models) as workers,
        running(release, tmp_path / "operator") as operator,
    ):
        wait_until_ready(cluster, models, operator)
        targets_come_and_go(release, models, workers)
        a_service_comes_and_sheds_what_it_can(cluster, make_namespace(cluster, "other"))
        ask_as_the_test_pod_does(release, operator)
        an_upgrade_keeps_everything(release, models)
        assert refusals(release) == []
        assert release.granted() - used(release) == set(UNSEEN)
        assert "forbidden" not in operator.said.lower()
        an_uninstallation_keeps_definitions_and_services(release, models)


def a_service_comes_and_sheds_what_it_can(cluster: ControlPlane, namespace: str) -> None:
    """Takes every permission to make and to delete."""
    kinds = f"{CHILDREN},persistentvolumeclaims,speculativerolescalers,podmonitors,inferencepools"
    cluster.kubectl("apply", "-f", "-", "-n", namespace, stdin=FULL)
    there = lambda *some: set(some) <= names(cluster, namespace, kinds)  # noqa: E731
    made = (
        "persistentvolumeclaim/full-target-cache",
        "speculativerolescaler.outrider.dev/full-target",
        "podmonitor.monitoring.coreos.com/full",
        "inferencepool.inference.networking.k8s.io/full",
        "deployment.apps/full-draft",
        "poddisruptionbudget.policy/full-draft",
        "networkpolicy.networking.k8s.io/full-target",
    )
    cluster.wait_until(lambda: there(*made), "all of it is made")
    cluster.kubectl("apply", "-f", "-", "-n", namespace, stdin=BARE)

    def shed() -> bool:
        left = names(cluster, namespace, kinds)
        return not left & set(made) and not any("draft" in name for name in left)

    cluster.wait_until(shed, "what is no longer wanted is gone")


def targets_come_and_go(release: Release, namespace: str, workers: PodWorkers) -> None:
    """Takes the permission to say which target goes first: used only where one has answered."""
    cluster, name = release.control_plane, "smollm2-135m-instruct"

    def ordered() -> bool:
        for number in (2, 1):
            patch = json.dumps({"spec": {"target": {"replicas": number}}})
            cluster.kubectl("patch", "specsvc", name, "-n", namespace, "--type=merge", "-p", patch)
            workers.wait_for(Role.TARGET, number)
        return ("", "pods", "patch") in used(release)

    cluster.wait_until(ordered, "the operator has said which target goes first")


def ask_as_the_test_pod_does(release: Release, operator: OperatorProcess) -> None:
    """`helm test` has no containers here: its pod is allowed, its command runs here."""
    pod = only(release.rendered(), "Pod")
    release.control_plane.kubectl("create", "--dry-run=server", "-f", "-", stdin=json.dumps(pod))
    (container,) = pod["spec"]["containers"]
    code, address = container["args"]
    assert address == f"http://{release.deployment['metadata']['name']}.{SYSTEM}:8080/healthz"
    words = [sys.executable, *container["command"][1:], code, f"{operator.address}/healthz"]
    assert subprocess.run(words, capture_output=True, text=True, check=True).stdout == "ok\n"


def an_upgrade_keeps_everything(release: Release, models: str) -> None:
    """Services, and their pods with them."""
    cluster = release.control_plane
    uids = "jsonpath={.items[*].metadata.uid}"
    kept = ("get", "specsvc,pods", "-n", models, "-o", uids)
    before = cluster.kubectl(*kept)
    release.helm("upgrade", "--set", "replicas=2", "--wait", "--timeout=100s")
    assert release.deployment["spec"]["replicas"] == 2
    assert cluster.kubectl(*kept) == before


def an_uninstallation_keeps_definitions_and_services(release: Release, models: str) -> None:
    cluster = release.control_plane
    cluster.helm("uninstall", release.name, "-n", release.namespace, "--wait")
    assert "smollm2" in cluster.kubectl("get", "specsvc", "-n", models, "-o", "name")
    found = cluster.kubectl("get", "deployments", "-n", release.namespace, "-o", "name")
    assert found == ""
    another_name_takes_the_definitions_over(cluster, models)


def another_name_takes_the_definitions_over(cluster: ControlPlane, models: str) -> None:
    release = Release(cluster, "another", SYSTEM)
    with pytest.raises(KubectlError, match="invalid ownership metadata"):
        release.helm("install")
    release.helm("install", "--take-ownership", "--wait", "--timeout=100s")
    (owner,) = {
        cluster.kubectl("get", "crd", f"{plural}.outrider.dev", "-o", f"jsonpath={RELEASE_NAME}")
        for plural in ("speculativeservices", "speculativerolescalers")
    }
    assert owner == "another"
    assert "smollm2" in cluster.kubectl("get", "specsvc", "-n", models, "-o", "name")
    cluster.helm("uninstall", release.name, "-n", release.namespace, "--wait")


@pytest.mark.slow
def test_an_operator_of_one_namespace_has_permissions_there_alone(
    cluster: ControlPlane, tmp_path: Path
) -> None:
    system = make_namespace(cluster, "team-system")
    inside, outside = (make_namespace(cluster, name) for name in ("team-a", "team-b"))
    release = Release(cluster, "team", system)
    values = f"namespaces={{{inside}}},crds.install={str(not definitions(cluster)).lower()}"
    options = ("--set", values, "--values", str(OUT_OF_MESHES), "--wait", "--timeout=100s")
    release.helm("install", *options)
    for namespace in (inside, outside):
        cluster.kubectl("apply", "-f", str(EXAMPLE), "-n", namespace)
    with (
        installed(cluster, LEADER_WORKER_SET),
        PodWorkers.following(cluster, tmp_path / "workers", inside),
        running(release, tmp_path / "operator") as operator,
    ):
        wait_until_ready(cluster, inside, operator)
        no_pod_is_in_a_mesh(release, inside)
        tried = release.helm("upgrade", "--reuse-values", "--dry-run=server")
        assert "NOTES:" in tried
        assert INSTALL_LWS not in tried
        groups_of_a_leader_worker_set_come_and_go(cluster, inside)
        assert {(*SETS, "create"), (*SETS, "delete")} <= used(release)
        assert refusals(release) == []
        assert "forbidden" not in operator.said.lower()
        assert names(cluster, outside) == set()
    with pytest.raises(KubectlError, match="forbidden"):
        cluster.kubectl("get", "pods", "-n", outside, kubeconfig=release.kubeconfig())


def no_pod_is_in_a_mesh(release: Release, namespace: str) -> None:
    """Of services, of the operator and of tests."""
    cluster = release.control_plane
    templates = [release.deployment["spec"]["template"]]
    rendered = release.rendered("--values", str(OUT_OF_MESHES), "--set", "tests.token.enabled=true")
    templates += [one for one in rendered if one["kind"] == "Pod"]
    pods = json.loads(cluster.kubectl("get", "pods", "-n", namespace, "-o", "json"))["items"]
    assert len(templates) == 3
    assert len(pods) == 2
    for one in (*templates, *pods):
        assert one["metadata"]["labels"]["sidecar.istio.io/inject"] == "false"
        assert one["metadata"]["annotations"]["linkerd.io/inject"] == "disabled"


def groups_of_a_leader_worker_set_come_and_go(cluster: ControlPlane, namespace: str) -> None:
    """Takes every permission on them."""
    there = lambda: names(cluster, namespace, "leaderworkersets")  # noqa: E731
    cluster.kubectl("apply", "-f", "-", "-n", namespace, stdin=FULL)
    cluster.wait_until(lambda: any("full-target" in name for name in there()), "a set is made")
    cluster.kubectl("apply", "-f", "-", "-n", namespace, stdin=BARE)
    cluster.wait_until(lambda: not there(), "it is gone")
    cluster.kubectl("delete", "specsvc", "full", "-n", namespace)


def definitions(cluster: ControlPlane) -> bool:
    """Whether an earlier release has left them."""
    return "outrider.dev" in cluster.kubectl("get", "crd", "-o", "name")
