"""A draft's stream whose shared memory cannot be used ends at once and leaves nothing."""

import asyncio
import os
import socket
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import grpc
import numpy as np
import pytest

from outrider.contract.settings import LinkTransport
from outrider.protos.v1.internal import drafter_pb2 as pb
from outrider.worker.link import handshake
from outrider.worker.link.choice import Chosen, choice_message
from outrider.worker.link.meeting import LinkMemory, MeetingPlace
from outrider.worker.link.memory_file import FILE_BYTES
from outrider.worker.link.service import DrafterService, SendQueues
from outrider.worker.messages import Identity

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="memory files are Linux's")


class Aborted(Exception):
    """What ends the handler of a stream."""


class Context:
    """Of a stream whose other end is the test."""

    async def abort(self, code: grpc.StatusCode, details: str) -> None:
        raise Aborted(code, details)


def test_memory_that_cannot_be_mapped_leaves_no_stream(tmp_path: Path) -> None:
    own = Identity("r", 1, 64, 64, np.ones(1, np.uint64), sessions=2, link_dir=str(tmp_path))
    (tmp_path / "file").write_bytes(bytes(FILE_BYTES))
    memory = LinkMemory(os.open(tmp_path / "file", os.O_RDONLY), socket.socket(socket.AF_UNIX))
    queues, news = SendQueues(), list[object]()

    async def pair() -> Aborted:
        meeting = MeetingPlace.open(tmp_path)
        said: asyncio.Queue[bytes] = asyncio.Queue()
        service = DrafterService(own, news.append, queues, meeting)
        answers = service.pair(_each(said), Context())  # type: ignore[arg-type]
        hello = pb.DraftMessage.FromString(await anext(answers)).hello
        meeting._taken[hello.meeting.token] = memory
        said.put_nowait(handshake.hello_to_draft(own))
        said.put_nowait(choice_message(Chosen(LinkTransport.SHARED_MEMORY, memory=memory), ""))
        with pytest.raises(Aborted) as aborted:
            await anext(answers)
        meeting.close()
        return aborted.value

    details = "shared memory cannot be mapped: Permission denied"
    assert asyncio.run(pair()).args == (grpc.StatusCode.DATA_LOSS, details)
    assert queues.by_link == {}
    assert news == []
    assert memory.bell.fileno() == -1


async def _each(said: "asyncio.Queue[bytes]") -> AsyncIterator[bytes]:
    while True:
        yield await said.get()
