"""Many fake workers in one process: each speaks for its own pod, and goes with it."""

import http.client
import json
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from outrider.client import Client, ClientError, LinkState, State
from outrider.contract import metrics
from outrider.contract.process import GRPC_PORT, HTTP_PORT
from outrider.contract.settings import PolicySettings, Role
from tests.kube.behaviour import Behaviour
from tests.kube.control_plane import ControlPlane
from tests.kube.test_pod_workers import deploy
from tests.kube.worker_crowd import crowd

NO_ANSWER = (urllib.error.URLError, http.client.HTTPException, ConnectionError, TimeoutError)


def addresses(control_plane: ControlPlane, namespace: str, role: Role, count: int) -> list[str]:
    """Of a role's pods, once there are so many that answer."""
    found: list[str] = []

    def answer() -> bool:
        label = f"outrider.dev/role={role}"
        text = control_plane.kubectl("get", "pods", "-n", namespace, "-l", label, "-o", "json")
        found[:] = [pod["status"].get("podIP", "") for pod in json.loads(text)["items"]]
        return len(found) == count and all(map(answers, found))

    control_plane.wait_until(answer, f"{count} {role}s answer")
    return found


def state(address: str) -> State:
    with Client(f"{address}:{GRPC_PORT}") as client:
        return client.state(timeout=5)


def answers(address: str) -> bool:
    try:
        return bool(address) and bool(state(address))
    except ClientError:
        return False


def text(address: str) -> str:
    with urllib.request.urlopen(f"http://{address}:{HTTP_PORT}/metrics", timeout=10) as answer:
        return str(answer.read().decode())


def test_each_pod_of_a_crowd_has_a_worker_of_its_own(
    control_plane: ControlPlane, namespace: str, tmp_path: Path
) -> None:
    deploy(control_plane, namespace, Role.TARGET, 3)
    deploy(control_plane, namespace, Role.DRAFT, 1)
    with crowd(control_plane, tmp_path, Behaviour(running=2), namespace):
        (draft,) = addresses(control_plane, namespace, Role.DRAFT, 1)
        first, *others = addresses(control_plane, namespace, Role.TARGET, 3)
        policy = PolicySettings(version=7, drafts=(f"{draft}:{GRPC_PORT}",))
        with Client(f"{first}:{GRPC_PORT}") as client:
            told = client.set_policy(policy, timeout=5)
        assert [link.state for link in told.links] == [LinkState.UP]
        assert [state(one).policy.version for one in (first, *others)] == [7, 0, 0]
        assert metrics.NUM_REQUESTS_RUNNING.name in text(first)
        assert 'role="draft"' in text(draft)


def test_a_worker_of_a_crowd_goes_with_its_pod(
    control_plane: ControlPlane, namespace: str, tmp_path: Path
) -> None:
    deploy(control_plane, namespace, Role.TARGET, 1)
    with crowd(control_plane, tmp_path, Behaviour(), namespace):
        (one,) = addresses(control_plane, namespace, Role.TARGET, 1)
        control_plane.kubectl("scale", "-n", namespace, "deploy", "--all", "--replicas=0")
        control_plane.wait_until(lambda: not answers(one), "the worker is gone")
        with pytest.raises(NO_ANSWER):
            text(one)
