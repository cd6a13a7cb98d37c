"""What the operator takes from a worker, whose image is its service's author's choice."""

import asyncio
from dataclasses import replace
from typing import Any

import grpc
import pytest

from outrider.operator.workers import client
from outrider.operator.workers.client import LARGEST_ANSWER, WorkerClients
from outrider.protos.v1.internal import control_pb2, control_pb2_grpc
from tests.unit.operator.workers.test_pushes import pod

LINKS = 100


class Worker(control_pb2_grpc.ControlServicer):
    """Says any state."""

    def __init__(self, state: control_pb2.State) -> None:
        self.state = state

    async def GetState(self, request: Any, context: Any) -> control_pb2.State:
        return self.state


def asked(state: control_pb2.State, monkeypatch: pytest.MonkeyPatch) -> tuple[int, str]:
    """Links of the state that the operator reads, -1 for none, and why there is none."""

    async def main() -> tuple[int, str]:
        server = grpc.aio.server()
        control_pb2_grpc.add_ControlServicer_to_server(Worker(state), server)
        monkeypatch.setattr(client, "CONTROL_PORT", server.add_insecure_port("127.0.0.1:0"))
        monkeypatch.setattr(client, "TIMEOUT_SECONDS", 60.0)
        await server.start()
        one = replace(pod("u"), address="127.0.0.1")
        async with WorkerClients() as clients:
            report = (await clients.reports([one]))["u"]
        await server.stop(0)
        return (-1 if report.state is None else len(report.state.links)), report.problem

    return asyncio.run(main())


def test_a_state_of_many_links_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    state = control_pb2.State(
        role="target", links=[control_pb2.Link(address="10.0.0.1:50051")] * LINKS
    )
    assert asked(state, monkeypatch) == (LINKS, "")


def test_one_of_countless_empty_links_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    state = control_pb2.State(role="target", links=[control_pb2.Link()] * (LARGEST_ANSWER // 4))
    assert state.ByteSize() < LARGEST_ANSWER
    links, error = asked(state, monkeypatch)
    assert links == -1
    assert "65536 members" in error


def test_one_that_is_too_long_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    state = control_pb2.State(role="target", links=[control_pb2.Link(address="a" * LARGEST_ANSWER)])
    links, error = asked(state, monkeypatch)
    assert links == -1
    assert "larger than max" in error
