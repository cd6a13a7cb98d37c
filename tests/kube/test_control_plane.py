"""The control plane that every other test of this folder relies on."""

import ipaddress
import signal
import socket
import subprocess
import sys
from pathlib import Path

import grpc
import pytest

from outrider.client import Unavailable
from tests.kube.control_plane import ControlPlane, KubectlError
from tests.kube.pod_network import POD_RANGE
from tests.kube.server_process import ServerEnded

ANSWER = """
import socket, sys
with socket.create_server((sys.argv[1], 50051)) as server:
    print("listening", flush=True)
    connection, _ = server.accept()
    connection.sendall(b"a pod was here")
    connection.close()
"""


def deploy(control_plane: ControlPlane, namespace: str, replicas: int) -> list[str]:
    """The addresses of the pods of a new Deployment, once all are available."""
    control_plane.kubectl(
        "create", "deployment", "web", "--image=none", f"--replicas={replicas}", "-n", namespace
    )
    control_plane.kubectl("rollout", "status", "deployment/web", "--timeout=60s", "-n", namespace)
    addresses = "jsonpath={.items[*].status.podIP}"
    return control_plane.kubectl("get", "pods", "-n", namespace, "-o", addresses).split()


def test_a_deployment_becomes_available_and_its_pods_have_addresses(
    control_plane: ControlPlane, namespace: str
) -> None:
    addresses = deploy(control_plane, namespace, replicas=3)
    assert len(set(addresses)) == 3
    assert all(ipaddress.IPv4Address(address) in POD_RANGE for address in addresses)


def test_a_process_that_listens_on_a_pods_address_is_found_there(
    control_plane: ControlPlane, namespace: str
) -> None:
    (address,) = deploy(control_plane, namespace, replicas=1)
    command = [sys.executable, "-c", ANSWER, address]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as worker:
        assert worker.stdout is not None
        assert worker.stdout.readline() == "listening\n"
        with socket.create_connection((address, 50051), timeout=30) as connection:
            assert connection.recv(100) == b"a pod was here"


def test_what_kubectl_refuses_is_told(control_plane: ControlPlane) -> None:
    with pytest.raises(KubectlError, match='pods "nobody" not found'):
        control_plane.kubectl("get", "pod", "nobody")


def test_a_service_accounts_kubeconfig_has_its_permissions_alone(
    control_plane: ControlPlane, namespace: str
) -> None:
    user = control_plane.user_kubeconfig("default", namespace)
    name = "jsonpath={.status.userInfo.username}"
    who = control_plane.kubectl("auth", "whoami", "-o", name, kubeconfig=user)
    assert who == f"system:serviceaccount:{namespace}:default"
    with pytest.raises(KubectlError, match=f'"{who}" cannot list resource "pods"'):
        control_plane.kubectl("get", "pods", kubeconfig=user)


def test_a_killed_api_server_is_noticed(tmp_path: Path) -> None:
    with ControlPlane.started(tmp_path, controllers=False) as control_plane:
        server = control_plane.servers["kube-apiserver"]
        server.process.send_signal(signal.SIGKILL)
        server.process.wait()
        with pytest.raises(ServerEnded, match="kube-apiserver ended with -9"):
            control_plane.kubectl("get", "namespaces")


def test_a_worker_that_does_not_answer_is_asked_again_and_named_in_the_end(
    control_plane: ControlPlane,
) -> None:
    lives = iter([False, False, True])

    def answers() -> bool:
        if not next(lives):
            raise Unavailable("10.64.0.9: refused", grpc.StatusCode.UNAVAILABLE)
        return True

    def is_gone() -> bool:
        raise Unavailable("10.64.0.9: refused", grpc.StatusCode.UNAVAILABLE)

    control_plane.wait_until(answers, "it answers")
    with pytest.raises(AssertionError, match=r"not within 0\.1 s: it answers: 10\.64\.0\.9: ref"):
        control_plane.wait_until(is_gone, "it answers", seconds=0.1)
