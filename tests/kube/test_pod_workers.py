"""Fake workers, on which the operator's tests rely: on their pods' addresses, speaking for real."""

import dataclasses
import json
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from outrider.client import Client, ClientError, LinkState
from outrider.contract import metrics
from outrider.contract.process import CONTROL_PORT, GRPC_PORT, HTTP_PORT
from outrider.contract.settings import ModelSettings, PolicySettings, Role, WorkerSettings
from tests.kube.control_plane import ControlPlane
from tests.kube.pod_workers import LABEL, PodWorker, PodWorkers

SETTINGS = "/etc/outrider/settings"
POLICY = "/etc/outrider/policy/policy.json"
RISING = {"draft_rows": 1e6, "plain_seconds": 2e6, "spent_seconds": 1e6}


def deploy(control_plane: ControlPlane, namespace: str, role: Role, replicas: int) -> None:
    """Workers of one role, with settings as an operator would write them."""
    settings = WorkerSettings(
        role=role,
        name="tiny",
        model=ModelSettings(uri="file:///models/tiny"),
        listen=f"0.0.0.0:{GRPC_PORT}",
        control_listen=f"0.0.0.0:{CONTROL_PORT}",
        http_listen=f"0.0.0.0:{HTTP_PORT}",
        guarded=True,
    )
    named = {"name": f"w-{role}", "namespace": namespace}
    labels = {LABEL: str(role)}
    container = {
        "name": "main",
        "image": "none",
        "args": ["serve", "--settings", f"{SETTINGS}/settings.json", "--policy", POLICY],
        "volumeMounts": [
            {"name": "settings", "mountPath": SETTINGS},
            {"name": "policy", "mountPath": str(Path(POLICY).parent)},
        ],
    }
    volumes = [
        {"name": "settings", "configMap": {"name": f"w-{role}"}},
        {"name": "policy", "configMap": {"name": "intent", "optional": True}},
    ]
    template = {
        "metadata": {"labels": labels},
        "spec": {"containers": [container], "volumes": volumes},
    }
    control_plane.apply(
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": named,
            "data": {"settings.json": settings.to_json()},
        },
        {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": named,
            "spec": {
                "replicas": replicas,
                "selector": {"matchLabels": labels},
                "template": template,
            },
        },
    )


def text(worker: PodWorker, path: str) -> str:
    """What its HTTP server answers."""
    with urllib.request.urlopen(f"http://{worker.ip}:{HTTP_PORT}{path}", timeout=30) as answer:
        return str(answer.read().decode())


def value(worker: PodWorker, metric: metrics.Metric) -> float:
    """The only value of a metric."""
    lines = [line for line in text(worker, "/metrics").splitlines() if line[0] != "#"]
    (line,) = (line for line in lines if line.startswith(metric.name + "{"))
    return float(line.rpartition(" ")[2])


def until(control_plane: ControlPlane, holds: Callable[[], bool], what: str) -> None:
    control_plane.wait_until(holds, what)


def test_each_pod_has_a_worker_on_its_own_address(
    control_plane: ControlPlane, namespace: str, workers: PodWorkers
) -> None:
    deploy(control_plane, namespace, Role.DRAFT, 2)
    one, two = workers.wait_for(Role.DRAFT, 2)
    assert one.ip != two.ip
    assert one.state().incarnation != two.state().incarnation
    assert one.state().role == two.state().role == "draft"
    assert text(one, "/healthz") == "alive\n"


def test_a_target_follows_its_newest_policy_and_links_to_drafts_that_are_ready(
    control_plane: ControlPlane, namespace: str, workers: PodWorkers
) -> None:
    deploy(control_plane, namespace, Role.TARGET, 1)
    deploy(control_plane, namespace, Role.DRAFT, 1)
    (target,), (draft,) = (workers.wait_for(role, 1) for role in (Role.TARGET, Role.DRAFT))
    policy = PolicySettings(version=7, drafts=(f"{draft.ip}:{GRPC_PORT}",))
    with Client(f"{target.ip}:{GRPC_PORT}") as client:
        client.set_policy(policy)
        older = dataclasses.replace(policy, version=6, drafts=())
        assert client.set_policy(policy).policy == policy, "once more changes nothing"
        with pytest.raises(ClientError, match="6 is superseded; the newest is 7"):
            client.set_policy(older)
        with pytest.raises(ClientError, match=r"policy\.depth"):
            client.set_policy(dataclasses.replace(policy, version=8, depth=0))

    def linked() -> bool:
        (link,) = target.state().links
        return link.state is LinkState.UP and link.incarnation == draft.state().incarnation

    until(control_plane, linked, "the link is up")
    draft.behave(ready=False)
    until(control_plane, lambda: not linked(), "the link is lost with its draft")


def test_metrics_are_the_real_workers_and_counters_rise_only_while_it_drafts(
    control_plane: ControlPlane, namespace: str, workers: PodWorkers
) -> None:
    workers.behave(Role.TARGET, rates=RISING, waiting=3)
    deploy(control_plane, namespace, Role.TARGET, 1)
    deploy(control_plane, namespace, Role.DRAFT, 1)
    (target,), (draft,) = (workers.wait_for(role, 1) for role in (Role.TARGET, Role.DRAFT))
    assert value(target, metrics.NUM_REQUESTS_WAITING) == 3
    assert value(target, metrics.NUM_DRAFT_TOKENS) == 0
    plain = value(target, metrics.GAIN_PLAIN_SECONDS)
    assert 0 < plain <= value(target, metrics.GAIN_SPENT_SECONDS)
    with Client(f"{target.ip}:{GRPC_PORT}") as client:
        client.set_policy(PolicySettings(version=1, drafts=(f"{draft.ip}:{GRPC_PORT}",)))
    rows = lambda: value(target, metrics.NUM_DRAFT_TOKENS)  # noqa: E731
    until(control_plane, lambda: rows() > 0, "drafted rows are counted")
    target.behave(rates={}, counters={"draft_rows": 5})
    assert rows() == rows() == 5


def test_a_worker_that_drains_is_not_ready_and_ends_when_nothing_runs(
    control_plane: ControlPlane, namespace: str, workers: PodWorkers
) -> None:
    workers.behave(Role.DRAFT, running=2)
    deploy(control_plane, namespace, Role.DRAFT, 1)
    (draft,) = workers.wait_for(Role.DRAFT, 1)
    first = draft.state().incarnation
    with Client(f"{draft.ip}:{GRPC_PORT}") as client:
        assert client.drain(600) == 2
    assert draft.state().draining
    with pytest.raises(urllib.error.HTTPError, match="503"):
        text(draft, "/readyz")
    with grpc.insecure_channel(f"{draft.ip}:{GRPC_PORT}") as channel:
        health = health_pb2_grpc.HealthStub(channel)

        def refused() -> bool:
            status = health.Check(health_pb2.HealthCheckRequest(), timeout=30).status
            return bool(status == health_pb2.HealthCheckResponse.NOT_SERVING)

        until(control_plane, refused, "health says so too")
    draft.behave(running=0)
    until(control_plane, lambda: draft.lives == 2 and draft.answers, "a new life begins")
    assert draft.state().incarnation != first
    assert not draft.state().draining


def test_a_killed_worker_comes_back_and_a_deleted_pods_worker_does_not(
    control_plane: ControlPlane, namespace: str, workers: PodWorkers
) -> None:
    deploy(control_plane, namespace, Role.DRAFT, 1)
    (draft,) = workers.wait_for(Role.DRAFT, 1)
    draft.kill()
    until(control_plane, lambda: draft.lives == 2 and draft.answers, "a new life begins")
    control_plane.kubectl("scale", "deployment/w-draft", "--replicas=0", "-n", namespace)
    workers.wait_for(Role.DRAFT, 0)
    assert not draft.answers


def test_a_policy_that_was_stored_is_what_a_worker_starts_with(
    control_plane: ControlPlane, namespace: str, workers: PodWorkers
) -> None:
    stored = {"version": 41, "speculate": False, "drafts": ["10.64.9.9:50051"]}
    intent = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "intent", "namespace": namespace},
        "data": {"policy.json": json.dumps(stored)},
    }
    control_plane.apply(intent)
    deploy(control_plane, namespace, Role.TARGET, 1)
    (target,) = workers.wait_for(Role.TARGET, 1)
    state = target.state()
    assert (state.policy.version, state.policy.speculate) == (41, False)
    (link,) = state.links
    assert (link.address, link.state) == ("10.64.9.9:50051", LinkState.CONNECTING)
