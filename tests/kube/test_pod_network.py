"""The namespace that the tests of this folder run in, and how it ends."""

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

from tests.kube import pod_network

SERVER = """
import os, signal, subprocess
server = subprocess.Popen(["sleep", "600"], start_new_session=True)
print(server.pid, flush=True)
"""
KILLED = SERVER + "os.kill(os.getpid(), signal.SIGKILL)"
WAITS = SERVER + "server.wait()"


def launch(script: str) -> "subprocess.Popen[str]":
    """Runs Python code in one more namespace."""
    command = [sys.executable, "-m", "tests.kube.pod_network", sys.executable, "-c"]
    return subprocess.Popen(
        [*command, script],
        cwd=Path(__file__).parents[2],
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def first_number(process: "subprocess.Popen[str]") -> int:
    assert process.stdout is not None
    return int(process.stdout.readline())


def runs(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


def test_two_namespaces_share_neither_ports_nor_pod_addresses() -> None:
    where = (str(pod_network.POD_RANGE[7]), 50051)
    bind = f"import socket; socket.create_server({where!r}); print(1, flush=True)"
    with socket.create_server(where), launch(bind) as other:
        assert first_number(other) == 1


def test_servers_end_with_a_command_that_was_killed() -> None:
    with launch(KILLED) as process:
        server = first_number(process)
        assert process.wait(60) == 128 + signal.SIGKILL
        assert not runs(server)


def test_servers_end_when_the_command_is_told_to_end() -> None:
    with launch(WAITS) as process:
        server = first_number(process)
        assert runs(server)
        os.kill(process.pid, signal.SIGTERM)
        assert process.wait(60) != 0
        assert not runs(server)
