"""Control on a port of its own: clients' port knows nothing of it."""

import asyncio
import contextlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import grpc
import pytest
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from outrider.contract.settings import (
    ModelSettings,
    PolicySettings,
    Role,
    SettingsError,
    WorkerSettings,
)
from outrider.contract.state import State
from outrider.operator.naming import OPERATOR_IDENTITY
from outrider.protos.v1.internal import control_pb2, control_pb2_grpc
from outrider.worker.host.peers import open_channel
from outrider.worker.messages import Timeline
from outrider.worker.server.build import Ports, register_common
from outrider.worker.server.control import Control
from outrider.worker.server.control_service import control_server
from outrider.worker.server.readiness import HealthService
from tests.peer_folders import fill, name_of, new_authorities, peers_in
from tests.ports import free_port

CONTROL = "outrider.protos.v1.Control"
SECONDS = 60.0
NO_PROXY = (("grpc.enable_http_proxy", 0),)


@dataclass
class Idle:
    """A worker that does nothing but take policies."""

    policies: list[PolicySettings] = field(default_factory=list)

    def set_policy(self, policy: PolicySettings) -> None:
        self.policies.append(policy)

    def state(self) -> State:
        return State(role=Role.TARGET, model="tiny")

    def drain(self, grace: float) -> int:
        return 0

    async def timeline(self) -> Timeline:
        return Timeline()


async def listed(channel: grpc.aio.Channel) -> set[str]:
    """The services that a server says it has."""
    stub: Any = reflection_pb2_grpc.ServerReflectionStub(channel)
    asked = reflection_pb2.ServerReflectionRequest(list_services="")
    call = stub.ServerReflectionInfo(iter([asked]), timeout=SECONDS)
    answer = await anext(aiter(call))
    return {service.name for service in answer.list_services_response.service}


async def status_of(channel: grpc.aio.Channel) -> grpc.StatusCode:
    """How a policy fares."""
    policy = control_pb2.Policy(version=1, max_rows=1, depth=1, width=1, nodes_ahead=1)
    call = control_pb2_grpc.ControlStub(channel).SetPolicy(
        control_pb2.SetPolicyRequest(policy=policy), timeout=SECONDS
    )
    return cast(grpc.StatusCode, await call.code())


@pytest.mark.parametrize("apart", [True, False])
def test_only_the_port_of_control_takes_policies(apart: bool) -> None:
    async def ask() -> tuple[list[grpc.StatusCode], list[bool]]:
        settings = WorkerSettings(
            role=Role.TARGET,
            name="tiny",
            model=ModelSettings(uri="file:///tiny"),
            control_listen=f"127.0.0.1:{free_port()}" if apart else "",
        )
        clients = grpc.aio.server()
        address = f"127.0.0.1:{clients.add_insecure_port(settings.listen)}"
        control = control_server(settings, settings.control_listen) if apart else None
        ports = Ports(clients, control, None, None)
        register_common(ports, settings, cast(Control, idle), HealthService())
        for server in ports.servers:
            await server.start()
        where = [address, settings.control_listen] if apart else [address]
        try:
            async with contextlib.AsyncExitStack() as stack:
                opened = [grpc.aio.insecure_channel(one, options=NO_PROXY) for one in where]
                channels = [await stack.enter_async_context(one) for one in opened]
                found = [await status_of(one) for one in channels]
                return found, [CONTROL in await listed(one) for one in channels]
        finally:
            for server in ports.servers:
                await server.stop(None)

    idle = Idle()
    codes = grpc.StatusCode
    expected = ([codes.UNIMPLEMENTED, codes.OK], [False, True]) if apart else ([codes.OK], [True])
    assert asyncio.run(ask()) == expected
    assert [policy.version for policy in idle.policies] == [1]


def test_control_beyond_loopback_is_for_the_operator_alone(tmp_path: Path) -> None:
    authorities = new_authorities()
    names = {"operator": OPERATOR_IDENTITY, "target": name_of(Role.TARGET)}
    for one, name in names.items():
        fill(tmp_path / one, authorities, name)

    async def ask() -> list[grpc.StatusCode]:
        settings = WorkerSettings(
            role=Role.TARGET,
            name="tiny",
            model=ModelSettings(uri="file:///tiny"),
            control_listen=f"0.0.0.0:{free_port()}",
            guarded=True,
            peers=peers_in(tmp_path / "target"),
        )
        ports = Ports(
            grpc.aio.server(), control_server(settings, settings.control_listen), None, None
        )
        register_common(ports, settings, cast(Control, idle), HealthService())
        assert ports.control is not None
        await ports.control.start()
        try:
            found = []
            for one in names:
                own = peers_in(tmp_path / one)
                where = (settings.control_listen, NO_PROXY, own, own.target)
                async with open_channel(*where) as channel:
                    found.append(await status_of(channel))
            return found
        finally:
            await ports.control.stop(None)

    idle = Idle()
    assert asyncio.run(ask()) == [grpc.StatusCode.OK, grpc.StatusCode.PERMISSION_DENIED]
    assert len(idle.policies) == 1


def test_clients_beyond_loopback_share_no_port_with_control() -> None:
    with pytest.raises(
        SettingsError, match=r"^settings.control_listen: missing, and .*0\.0\.0\.0:1:"
    ):
        WorkerSettings(
            role=Role.DRAFT, name="m", model=ModelSettings(uri="file:///m"), listen="0.0.0.0:1"
        )


LOCKED = {"api_keys_file": "keys", "tls_cert": "cert", "tls_key": "key"}
CONTROL_HERE = {"control_listen": "127.0.0.1:1"}


@pytest.mark.parametrize(
    ("role", "given", "refused"),
    [
        (Role.TARGET, {"http_listen": "0.0.0.0:1"}, "http_listen"),
        (Role.TARGET, {"http_listen": ":1"}, "http_listen"),
        (Role.TARGET, {"http_listen": "10.0.0.1:1", "api_keys_file": "keys"}, "http_listen"),
        (Role.TARGET, {"listen": "[::]:1", **CONTROL_HERE}, "listen"),
        (Role.TARGET, {"listen": "[::]:1", **CONTROL_HERE, **LOCKED}, None),
        (Role.TARGET, {"http_listen": "0.0.0.0:1", **LOCKED}, None),
        (Role.TARGET, {"control_listen": "0.0.0.0:1", **LOCKED}, "control_listen"),
        (Role.TARGET, {"control_listen": "0.0.0.0:1", "guarded": True}, None),
        (Role.DRAFT, {"http_listen": "host:1"}, "http_listen"),
        (Role.DRAFT, {"listen": "host:1", **CONTROL_HERE, "guarded": True}, None),
        (Role.DRAFT, {"listen": "127.0.0.2:1", "http_listen": "[::1]:1"}, None),
    ],
)
def test_strangers_reach_no_port_without_a_key(
    role: Role, given: dict[str, Any], refused: str | None
) -> None:
    model = ModelSettings(uri="file:///m")
    if refused is None:
        assert WorkerSettings(role=role, name="m", model=model, **given)
        return
    with pytest.raises(SettingsError, match=f"^settings.{refused}: .* is not on loopback"):
        WorkerSettings(role=role, name="m", model=model, **given)
