"""A link beyond loopback between workers that know each other by certificates."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import grpc
import numpy as np

from outrider.contract.peers import PeerSettings
from outrider.contract.settings import Role
from outrider.worker.host.peers import AllowedCaller, add_port
from outrider.worker.link.client import DraftLinks
from outrider.worker.link.service import DrafterService, SendQueues
from outrider.worker.messages import Identity, LinkState, LinkStates, LinkStatus
from tests.peer_folders import fill, name_of, new_authorities, peers_in

IDENTITY = Identity("revision", 1, 64, 64, np.ones(1, np.uint64), sessions=2)
SECONDS = 60.0


@contextlib.asynccontextmanager
async def draft(peers: PeerSettings) -> AsyncIterator[str]:
    """A draft that takes targets of its service, at its address."""
    service = DrafterService(
        IDENTITY, lambda news: None, SendQueues(), admission=AllowedCaller(peers.target)
    )
    server = grpc.aio.server()
    server.add_generic_rpc_handlers((service.handler(),))
    port = add_port(server, "0.0.0.0:0", peers)
    await server.start()
    try:
        yield f"0.0.0.0:{port}"
    finally:
        await server.stop(None)


async def link_of(address: str, peers: PeerSettings | None) -> LinkStatus:
    """What comes of a target's first attempt."""
    settled: asyncio.Future[LinkStatus] = asyncio.get_running_loop().create_future()

    def hear(news: object) -> None:
        for link in news.links if isinstance(news, LinkStates) else ():
            if not settled.done() and (link.state is not LinkState.CONNECTING or link.detail):
                settled.set_result(link)

    links = DraftLinks(replace(IDENTITY, peers=peers), hear)
    links.set_addresses([address])
    try:
        return await asyncio.wait_for(settled, SECONDS)
    finally:
        await links.close()


def test_only_targets_of_its_own_service_get_a_link_to_a_draft(tmp_path: Path) -> None:
    authorities = new_authorities()
    for one, role, service in (
        ("draft", Role.DRAFT, "chat"),
        ("mine", Role.TARGET, "chat"),
        ("theirs", Role.TARGET, "other"),
    ):
        fill(tmp_path / one, authorities, name_of(role, service))
    # One of another service that goes for this draft on purpose.
    hostile = replace(peers_in(tmp_path / "theirs", "other"), draft=name_of(Role.DRAFT))

    async def run() -> list[LinkStatus]:
        async with draft(peers_in(tmp_path / "draft")) as address:
            callers = (peers_in(tmp_path / "mine"), hostile, peers_in(tmp_path / "theirs", "other"))
            return [await link_of(address, one) for one in (*callers, None)]

    mine, theirs, looking_for_theirs, plain = asyncio.run(run())
    assert mine.state is LinkState.UP
    assert theirs.state is LinkState.REFUSED
    assert "target.other.default.outrider" in theirs.detail
    assert {looking_for_theirs.state, plain.state} == {LinkState.CONNECTING}


def test_a_target_without_its_files_tries_again(tmp_path: Path) -> None:
    found = asyncio.run(link_of("0.0.0.0:9", peers_in(tmp_path / "none")))
    assert found.state is LinkState.CONNECTING
    assert "No such file" in found.detail
