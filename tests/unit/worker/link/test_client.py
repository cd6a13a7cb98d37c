"""A target's links live on where the system has no descriptor or no mapping left to give."""

import asyncio
import errno
import os
import socket
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest

from outrider.contract.state import LinkState
from outrider.worker.errors import LinkBroken
from outrider.worker.link import client
from outrider.worker.link.client import PAIR, DraftLinks, _Link
from outrider.worker.link.meeting import LinkMemory
from outrider.worker.link.memory_file import FILE_BYTES
from outrider.worker.link.shared_memory import direct_link, target_end
from outrider.worker.messages import Identity, LinkStates, LinkUp
from tests.late_status import LateCall, LateChannel

IDENTITY = Identity("revision", 1, 64, 64, np.ones(1, np.uint64), sessions=2)
LONG_SECONDS = 20.0
UP = LinkUp(1, np.ones(3, np.bool_))


class Starved(DraftLinks):
    """Links of a process that may open nothing more."""

    async def _serve(self, link: _Link) -> None:
        raise OSError(errno.EMFILE, "too many open files")


def test_an_error_of_the_system_ends_no_link_for_good() -> None:
    async def keep() -> list[str]:
        details: list[str] = []
        tried_twice = asyncio.Event()

        def to_engine(news: object) -> None:
            assert isinstance(news, LinkStates)
            details.extend(s.detail for s in news.links if s.state is LinkState.CONNECTING)
            if sum(bool(detail) for detail in details) == 2:
                tried_twice.set()

        links = Starved(IDENTITY, to_engine)
        links.set_addresses(["draft:1"])
        await asyncio.wait_for(tried_twice.wait(), LONG_SECONDS)
        await links.close()
        return details

    assert asyncio.run(keep())[-1] == "[Errno 24] too many open files"


def test_a_refusal_is_one_although_a_write_failed_first(monkeypatch: pytest.MonkeyPatch) -> None:
    refusal = LateCall(3, grpc.StatusCode.FAILED_PRECONDITION, "another vocabulary")
    monkeypatch.setattr(client, "open_channel", lambda *_: LateChannel(refusal))

    async def refused() -> str:
        found: asyncio.Future[str] = asyncio.get_running_loop().create_future()

        def to_engine(news: object) -> None:
            assert isinstance(news, LinkStates)
            for status in news.links:
                if status.state is LinkState.REFUSED and not found.done():
                    found.set_result(status.detail)

        links = DraftLinks(IDENTITY, to_engine)
        links.set_addresses(["draft:1"])
        detail = await asyncio.wait_for(found, LONG_SECONDS)
        await links.close()
        return detail

    assert asyncio.run(refused()) == "FAILED_PRECONDITION: another vocabulary"


def test_a_stream_that_its_draft_ends_leaves_no_task_behind() -> None:
    async def refuse(incoming: AsyncIterator[bytes], context: Any) -> AsyncIterator[bytes]:
        await context.abort(grpc.StatusCode.UNAVAILABLE, "not now")
        yield b""

    async def left() -> list[asyncio.Task[Any]]:
        method = grpc.stream_stream_rpc_method_handler(refuse)
        server, ended, tasks = grpc.aio.server(), asyncio.Event(), set[asyncio.Task[Any]]()
        service, _, name = PAIR.strip("/").partition("/")
        server.add_generic_rpc_handlers(
            (grpc.method_handlers_generic_handler(service, {name: method}),)
        )
        port = server.add_insecure_port("127.0.0.1:0")
        await server.start()

        def to_engine(news: object) -> None:
            assert isinstance(news, LinkStates)
            if any("not now" in link.detail for link in news.links):
                tasks.update(asyncio.all_tasks() - before)
                ended.set()

        links = DraftLinks(IDENTITY, to_engine)
        before = asyncio.all_tasks()
        links.set_addresses([f"127.0.0.1:{port}"])
        await asyncio.wait_for(ended.wait(), LONG_SECONDS)
        await links.close()
        await server.stop(0)
        return [task for task in tasks if not task.done()]

    assert asyncio.run(left()) == []


def test_no_proxy_is_between_a_target_and_its_draft(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")  # nobody listens there
    monkeypatch.delenv("no_proxy", raising=False)

    async def reached() -> None:
        came = asyncio.Event()

        def take(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            came.set()
            writer.close()

        draft = await asyncio.start_server(take, "127.0.0.1", 0)
        links = DraftLinks(IDENTITY, lambda news: None)
        links.set_addresses([f"127.0.0.1:{draft.sockets[0].getsockname()[1]}"])
        await asyncio.wait_for(came.wait(), LONG_SECONDS)
        await links.close()
        draft.close()

    asyncio.run(reached())


@pytest.mark.skipif(sys.platform != "linux", reason="memory files are Linux's")
def test_memory_that_cannot_be_mapped_is_closed_and_breaks_the_link(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(bytes(FILE_BYTES))
    descriptor = os.open(tmp_path / "file", os.O_RDONLY)
    bell, theirs = socket.socketpair()
    with pytest.raises(LinkBroken, match="cannot be mapped: Permission denied"):
        direct_link(UP, LinkMemory(descriptor, bell), IDENTITY, target_end)
    assert bell.fileno() == -1
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(descriptor)
    theirs.close()
