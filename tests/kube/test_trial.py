"""`helm test` with a token: its pod's command, with its pod's permissions, on a real API server."""

import contextlib
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from outrider.operator.cluster.kinds import SERVICE
from tests.kube.chart import Object, Release
from tests.kube.operator_process import OperatorProcess
from tests.kube.pod_workers import PodWorkers
from tests.kube.space import Space

NAME, POD = "outrider-operator-trial", "outrider-operator-trial-pod"
SPEC = {"target": {"model": {"uri": "hf://org/large"}}}
ANSWER = {"choices": [{"text": ", there"}], "usage": {"completion_tokens": 2}}


@contextlib.contextmanager
def answering(*answers: tuple[int, Object]) -> Iterator[tuple[str, list[Object]]]:
    """A server in a target's place that gives these answers in turn, the last one for good; with
    what it was asked."""
    asked: list[Object] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            assert self.path == "/v1/completions"
            asked.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            status, content = answers[min(len(asked), len(answers)) - 1]
            body = json.dumps(content).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 # its own name
            """Says nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", asked
    finally:
        server.shutdown()
        server.server_close()


class HelmTest:
    """What `helm test` makes, but for the pod, whose command runs here."""

    def __init__(self, space: Space) -> None:
        release = Release(space.control_plane, "outrider", space.namespace)
        self.options = ("--set", f"tests.token.enabled=true,namespaces={{{space.namespace}}}")
        made = [
            one
            for one in release.rendered(
                *self.options, "--set-json", f"tests.token.spec={json.dumps(SPEC)}"
            )
            if one["metadata"]["name"] == POD
        ]
        (self.pod,) = (one for one in made if one["kind"] == "Pod")
        space.apply(*(one for one in made if one["kind"] != "Pod"))
        assert self.pod["spec"]["serviceAccountName"] == POD
        self.user = space.control_plane.user_kubeconfig(POD, space.namespace)

    def run(self, *more: str) -> "subprocess.CompletedProcess[str]":
        """The command to its end."""
        (container,) = self.pod["spec"]["containers"]
        command: Sequence[str] = (sys.executable, *container["command"][1:], *container["args"])
        environment = {**os.environ, "KUBECONFIG": str(self.user)}
        return subprocess.run(
            (*command, *more), env=environment, capture_output=True, text=True, timeout=120
        )


@pytest.fixture
def helm_test(space: Space, operator: OperatorProcess) -> HelmTest:
    return HelmTest(space)


def test_a_service_is_made_asked_for_tokens_and_deleted(
    helm_test: HelmTest, space: Space, workers: PodWorkers
) -> None:
    with answering((503, {}), (200, ANSWER)) as (url, asked):
        done = helm_test.run(f"--url={url}")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "2 tokens: ', there'"
    assert [one["model"] for one in asked] == [NAME, NAME]
    space.until(lambda: space.get(SERVICE, NAME) is None, "the service is gone")


def test_a_service_without_an_answer_fails_the_test_and_is_deleted(
    helm_test: HelmTest, space: Space, workers: PodWorkers
) -> None:
    with answering((200, {**ANSWER, "usage": {"completion_tokens": 0}})) as (url, _):
        done = helm_test.run(f"--url={url}")
    assert done.returncode == 1
    assert "an answer without a token" in done.stderr
    space.until(lambda: space.get(SERVICE, NAME) is None, "the service is gone")


def test_what_stalls_a_service_is_said(space: Space, helm_test: HelmTest) -> None:
    space.apply(
        {
            "apiVersion": "v1",
            "kind": "ServiceAccount",
            "metadata": {"name": NAME, "namespace": space.namespace},
        }
    )
    done = helm_test.run("--seconds=10")
    assert done.returncode == 1
    stalled = f"Stalled: ForeignObject: ServiceAccount {NAME} belongs to somebody else"
    assert stalled in done.stderr


def test_a_service_that_is_never_ready_fails_the_test_with_the_reason(
    space: Space, helm_test: HelmTest
) -> None:
    taint = {
        "target": {**SPEC["target"], "podTemplate": {"spec": {"nodeSelector": {"no": "node"}}}}
    }
    done = helm_test.run(f"--spec={json.dumps(taint)}", "--seconds=3")
    assert done.returncode == 1
    assert "not Ready within 3 s: TargetNotReady" in done.stderr
    space.until(lambda: space.get(SERVICE, NAME) is None, "the service is gone")
