"""Whatever the API server does not do for the operator is said, and stops nothing else."""

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest

from outrider.contract.settings import Role
from outrider.operator.cluster.kinds import POD, SERVICE
from tests.kube.api_proxy import BUSY_SECONDS, ApiProxy, Asked
from tests.kube.control_plane import ControlPlane
from tests.kube.operator_process import OperatorProcess, Operators
from tests.kube.pod_workers import PodWorkers
from tests.kube.space import Object, Space, service

MISTYPED = {"spec": {"nodeselector": {"disk": "fast"}}}
"""A field of pods that is called `nodeSelector`."""


@pytest.fixture
def proxy(control_plane: ControlPlane, tmp_path: Path) -> Iterator[ApiProxy]:
    with ApiProxy.started(control_plane, tmp_path / "proxy") as proxy:
        yield proxy


@pytest.fixture
def watched(operators: Operators, proxy: ApiProxy) -> OperatorProcess:
    """An operator whose requests are seen."""
    operator = operators.start(kubeconfig=proxy.kubeconfig)
    operator.wait_until_leading()
    return operator


@pytest.fixture
def dead_webhook(control_plane: ControlPlane, namespace: str) -> Iterator[Object]:
    """A webhook of somebody else, on Deployments of the namespace, where nobody listens."""
    name = f"dead-{namespace}"
    rule = {"apiGroups": ["apps"], "apiVersions": ["v1"], "resources": ["deployments"]}
    hook = {
        "name": "dead.example.com",
        "clientConfig": {"url": "https://127.0.0.1:9/"},
        "rules": [{**rule, "operations": ["CREATE", "UPDATE"]}],
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}},
        "failurePolicy": "Fail",
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
        "timeoutSeconds": 1,
    }
    yield {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": name},
        "webhooks": [hook],
    }
    gone = ("validatingwebhookconfiguration", name, "--ignore-not-found")
    control_plane.kubectl("delete", *gone)


def test_a_mistyped_pod_template_is_said_before_any_of_it_is_written(
    space: Space, watched: OperatorProcess, proxy: ApiProxy, workers: PodWorkers
) -> None:
    space.apply(service("chat"))
    space.until_at_rest("chat")
    old = [pod["metadata"]["uid"] for pod in space.pods(Role.TARGET)]
    before = len(proxy.asked)
    space.patch(SERVICE, "chat", {"spec": {"target": {"podTemplate": MISTYPED}}})
    found = space.until_condition("chat", "Degraded", "True", "Forbidden")
    assert "Deployment chat-target: " in found["message"]
    assert "nodeselector" in found["message"], "the API server is quoted"
    space.until_condition("chat", "Stalled", "True", "Forbidden")
    assert space.condition("chat", "Ready")["reason"] == "RolloutFailed"
    space.until_seen("chat")
    asked = [one for one in proxy.asked[before:] if one.about("deployments", "chat-target")]
    assert [one for one in asked if one.dry], "it was tried"
    assert not [one for one in asked if one.writes], "and not written"
    assert [pod["metadata"]["uid"] for pod in space.pods(Role.TARGET)] == old
    space.patch(SERVICE, "chat", {"spec": {"target": {"podTemplate": None}}})
    space.until_condition("chat", "Degraded", "False", "AsExpected")
    space.until_condition("chat", "Ready", "True", "Serving")
    assert "Traceback" not in watched.said


def test_a_webhook_that_is_dead_is_quoted_and_targets_are_told_of_their_drafts_meanwhile(
    space: Space, operator: OperatorProcess, workers: PodWorkers, dead_webhook: Object
) -> None:
    space.apply(service("chat"))
    space.until_at_rest("chat")
    (target,) = workers.wait_for(Role.TARGET, 1)
    space.control_plane.apply(dead_webhook)
    space.until(lambda: not _may_write_deployments(space), "the webhook is asked")
    space.patch(SERVICE, "chat", {"spec": {"target": {"image": "worker:2"}}})
    found = space.until_condition("chat", "Degraded", "True", "ApplyFailed")
    assert "Deployment chat-target: " in found["message"]
    assert "failed calling webhook" in found["message"]
    assert space.condition("chat", "Reconciling")["reason"] == "Applying"
    assert space.condition("chat", "Ready")["reason"] == "RollingOut"
    (draft,) = space.pods(Role.DRAFT)
    space.delete(POD, draft["metadata"]["name"])

    def told() -> bool:
        """Of the draft that the ReplicaSet has made instead."""
        known = [one.partition(":")[0] for one in target.state().policy.drafts]
        drafts = [pod for pod in space.pods(Role.DRAFT) if pod["metadata"] != draft["metadata"]]
        return bool(drafts) and known == [pod["status"].get("podIP") for pod in drafts]

    space.until(told, "the target is told of the new draft")
    assert ("Warning", "ApplyFailed") in [event[:2] for event in space.events("chat")]
    name = dead_webhook["metadata"]["name"]
    space.control_plane.kubectl("delete", "validatingwebhookconfiguration", name)
    space.until_condition("chat", "Degraded", "False", "AsExpected")
    space.until_condition("chat", "Ready", "True", "Serving")
    assert "Traceback" not in operator.said


def _may_write_deployments(space: Space) -> bool:
    try:
        space.kubectl("annotate", "deployment", "chat-target", "tried=yes", "--dry-run=server")
    except RuntimeError:
        return False
    return True


def test_a_server_that_asks_for_patience_gets_it_and_is_said(
    space: Space, watched: OperatorProcess, proxy: ApiProxy, workers: PodWorkers
) -> None:
    def refused(asked: Asked) -> bool:
        return asked.writes and asked.about("deployments", "chat-target")

    proxy.busy = refused
    space.apply(service("chat"))
    found = space.until_condition("chat", "Degraded", "True", "ApplyFailed")
    assert "too many requests" in found["message"]
    times = [one.at for one in proxy.asked if refused(one)]
    assert len(times) > 1
    assert all(b - a >= BUSY_SECONDS for a, b in itertools.pairwise(times))
    assert workers.wait_for(Role.DRAFT, 1), "drafts are made all the same"
    proxy.busy = lambda asked: False
    space.until_at_rest("chat")
    assert "Traceback" not in watched.said


def test_an_error_of_a_container_is_quoted_and_a_crash_loop_does_not_come_and_go(
    space: Space, operator: OperatorProcess, workers: PodWorkers
) -> None:
    space.apply(service("chat"))
    space.until_at_rest("chat")
    (target,) = space.pods(Role.TARGET)
    name = target["metadata"]["name"]
    for state, restarts in (("waiting", 2), ("running", 3), ("waiting", 3), ("running", 4)):
        space.report_pod(name, crashing(state, restarts))
        operator.wait_for_passes(2)
        found = space.until_condition("chat", "Degraded", "True", "PodsFailing")
    assert "main has ended 4 times, last with exit code 137 (OOMKilled)" in found["message"]
    told = [reason for _, reason, _ in space.events("chat")]
    assert told.count("PodsFailing") == 1
    assert "Recovered" not in told


def crashing(state: str, restarts: int) -> Object:
    """What a kubelet reports of a container that is killed for its memory again and again."""
    now = "2999-01-01T00:00:00Z"  # it has not run for long, whatever the clock says
    states: Object = {
        "waiting": {"reason": "CrashLoopBackOff", "message": "back-off 20s"},
        "running": {"startedAt": now},
    }
    main = {
        "name": "main",
        "image": "none",
        "imageID": "",
        "ready": state == "running",
        "restartCount": restarts,
        "state": {state: states[state]},
        "lastState": {"terminated": {"exitCode": 137, "reason": "OOMKilled"}},
    }
    return {"containerStatuses": [main]}
