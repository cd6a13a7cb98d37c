"""Links of a fake target, on loopback; no cluster is needed."""

import asyncio
from typing import Any

from grpc import aio

from outrider.contract.state import LinkState
from outrider.protos.v1.internal import control_pb2 as pb
from outrider.protos.v1.internal import control_pb2_grpc
from tests.kube.fake_links import LOOPBACK, FakeLinks

NOBODY = f"{LOOPBACK}:1"


class SlowDraft(control_pb2_grpc.ControlServicer):
    """A draft that answers once its test says so."""

    def __init__(self) -> None:
        self.asked, self.answers = asyncio.Event(), asyncio.Event()

    async def GetState(self, request: pb.GetStateRequest, context: Any) -> pb.State:
        """That it takes sessions."""
        self.asked.set()
        await self.answers.wait()
        return pb.State(role="draft", ready=True)


async def changed_while_asked() -> dict[str, LinkState]:
    """States of the links whose drafts became others while the first was asked."""
    draft, server, links = SlowDraft(), aio.server(), FakeLinks(LOOPBACK)
    control_pb2_grpc.add_ControlServicer_to_server(draft, server)
    address = f"{LOOPBACK}:{server.add_insecure_port(f'{LOOPBACK}:0')}"
    await server.start()
    links.want((address,))
    following = asyncio.create_task(links.follow())
    await draft.asked.wait()
    links.want((NOBODY, address))
    draft.answers.set()
    states: dict[str, LinkState] = {}
    while states.get(address) is not LinkState.UP and not following.done():
        await asyncio.sleep(0.01)
        states = {link.address: link.state for link in links.statuses("")}
    if following.done():
        following.result()
    following.cancel()
    await links.close()
    await server.stop(None)
    return states


def test_drafts_may_change_while_they_are_asked() -> None:
    found = asyncio.run(changed_while_asked())
    assert [state for address, state in found.items() if address != NOBODY] == [LinkState.UP]
    assert found[NOBODY] is LinkState.CONNECTING
