"""Memory is handed over in a folder, to a draft that has sent an offer, and to no other."""

import asyncio
import contextlib
import fcntl
import os
import resource
import socket
import sys
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest

from outrider.protos.v1.internal import drafter_pb2 as pb
from outrider.worker.errors import LinkBroken
from outrider.worker.link import memory_file
from outrider.worker.link.meeting import MeetingPlace, hand_over, short_path

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="memory files are Linux's")


LONG_SECONDS = 20.0


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """One whose path is too long for a socket's."""
    long = tmp_path / ("folder" * 20)
    long.mkdir()
    return long


def run(folder: Path, case: Callable[[MeetingPlace], Awaitable[None]]) -> None:
    async def meet() -> None:
        meeting = MeetingPlace.open(folder)
        try:
            await case(meeting)
        finally:
            meeting.close()

    asyncio.run(meet())
    assert list(folder.iterdir()) == [], "the socket stays behind"


def test_memory_that_is_handed_over_is_the_same_at_both_ends(folder: Path) -> None:
    async def case(meeting: MeetingPlace) -> None:
        offer = meeting.offer()
        ours = await hand_over(folder, offer)
        theirs = meeting.take(offer)
        assert theirs is not None
        os.pwrite(ours.descriptor, b"seen", 0)
        assert os.pread(theirs.descriptor, 4, 0) == b"seen"
        theirs.bell.send(b"!")
        assert ours.bell.recv(9) == b"!"
        assert meeting.take(offer) is None, "an offer is for one"
        ours.close()
        theirs.close()

    run(folder, case)


def test_each_offer_is_for_its_own_memory(folder: Path) -> None:
    async def case(meeting: MeetingPlace) -> None:
        offers = [meeting.offer() for _ in range(3)]
        given = [await hand_over(folder, offer) for offer in offers]
        for offer, ours in zip(reversed(offers), reversed(given), strict=True):
            theirs = meeting.take(offer)
            assert theirs is not None
            assert os.path.sameopenfile(theirs.descriptor, ours.descriptor)
            theirs.close()
            ours.close()

    run(folder, case)


@pytest.mark.parametrize(
    "change",
    [
        pb.Meeting(token=b"guessed guessed."),
        pb.Meeting(token=b""),
        pb.Meeting(token=b"far too long a token, of more bytes than any"),
    ],
)
def test_a_connection_without_offer_is_refused(folder: Path, change: pb.Meeting) -> None:
    async def case(meeting: MeetingPlace) -> None:
        offer = meeting.offer()
        stranger = pb.Meeting(socket=offer.socket, token=change.token)
        with pytest.raises(LinkBroken, match="cannot be met at"):
            await hand_over(folder, stranger)
        assert meeting.take(stranger) is None
        ours = await hand_over(folder, offer)
        ours.close()

    run(folder, case)


def test_an_offer_that_ended_is_none(folder: Path) -> None:
    async def case(meeting: MeetingPlace) -> None:
        offer = meeting.offer()
        assert meeting.take(offer) is None
        with pytest.raises(LinkBroken, match="no such token was offered"):
            await hand_over(folder, offer)

    run(folder, case)


def unsealed() -> int:
    descriptor = os.memfd_create("test", os.MFD_ALLOW_SEALING)
    os.ftruncate(descriptor, memory_file.FILE_BYTES)
    return descriptor


def read_only() -> int:
    """Sealed as it must be, and against writing, too: it cannot be mapped."""
    descriptor = unsealed()
    seals = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE | fcntl.F_SEAL_SEAL
    fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, seals)
    return descriptor


def ordinary() -> int:
    return os.open("/proc/self/status", os.O_RDONLY)


@pytest.mark.parametrize("make", [unsealed, read_only, ordinary, None])
def test_what_is_no_sealed_memory_is_not_taken(
    folder: Path, make: Callable[[], int] | None
) -> None:
    async def case(meeting: MeetingPlace) -> None:
        offer, loop = meeting.offer(), asyncio.get_running_loop()
        descriptors = [make()] if make else []
        connection = socket.socket(socket.AF_UNIX)
        connection.setblocking(False)
        with short_path(folder, meeting.name) as path:
            await loop.sock_connect(connection, path)
        socket.send_fds(connection, [offer.token], descriptors)
        assert b"memory" in await loop.sock_recv(connection, 500)
        assert await loop.sock_recv(connection, 500) == b"", "it has hung up"
        assert meeting.take(offer) is None
        connection.close()
        for descriptor in descriptors:
            os.close(descriptor)

    run(folder, case)


def test_silent_connections_keep_nobody_out(folder: Path) -> None:
    async def case(meeting: MeetingPlace) -> None:
        with contextlib.ExitStack() as stack:
            for _ in range(20):
                connection = stack.enter_context(socket.socket(socket.AF_UNIX))
                with short_path(folder, meeting.name) as path:
                    connection.connect(path)
            offer = meeting.offer()
            (await hand_over(folder, offer)).close()
            theirs = meeting.take(offer)
            assert theirs is not None
            theirs.close()

    run(folder, case)


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("../../etc/passwd", "names no socket of its own"),
        ("", "names no socket of its own"),
        ("draft-0123456789abcdef.sock", "No such file"),
    ],
)
def test_a_draft_is_looked_for_in_the_folder_alone(tmp_path: Path, name: str, says: str) -> None:
    with pytest.raises(LinkBroken, match=says):
        asyncio.run(hand_over(tmp_path, pb.Meeting(socket=name, token=bytes(16))))


def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(LinkBroken, match=r"no target can be met in .*none: No such file"):
        MeetingPlace.open(tmp_path / "none")
    with pytest.raises(LinkBroken, match=r"cannot be met at .*none.*: No such file"):
        asyncio.run(hand_over(tmp_path / "none", pb.Meeting(socket="draft-0123456789abcdef.sock")))


def test_a_connection_that_cannot_be_accepted_now_is_later(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def case(meeting: MeetingPlace) -> None:
        with socket.socket(socket.AF_UNIX) as connection:
            with short_path(folder, meeting.name) as path:
                connection.connect(path)
            with free_descriptors(0):
                async with asyncio.timeout(LONG_SECONDS):
                    while "cannot be accepted: Too many open files" not in caplog.text:
                        await asyncio.sleep(0)
        offer = meeting.offer()
        (await hand_over(folder, offer)).close()
        theirs = meeting.take(offer)
        assert theirs is not None
        theirs.close()

    run(folder, case)


def test_sockets_of_killed_drafts_are_removed_and_others_stay(tmp_path: Path) -> None:
    def bound(name: str) -> socket.socket:
        listener = socket.socket(socket.AF_UNIX)
        with short_path(tmp_path, name) as path:
            listener.bind(path)
        return listener

    killed, living, foreign = "draft-" + 16 * "a" + ".sock", "draft-" + 16 * "b" + ".sock", "other"

    async def case(meeting: MeetingPlace) -> None:
        assert {path.name for path in tmp_path.iterdir()} == {meeting.name, living, foreign}
        (await hand_over(tmp_path, meeting.offer())).close()
        (tmp_path / living).unlink()
        (tmp_path / foreign).unlink()

    for name in (killed, foreign):
        bound(name).close()
    with bound(living) as listener:
        listener.listen()
        run(tmp_path, case)


@contextlib.contextmanager
def free_descriptors(count: int) -> Iterator[None]:
    """Let this process open `count` more files, and no other."""
    lowest = os.dup(0)
    os.close(lowest)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (lowest + count, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_memory_without_a_socket_is_given_up(folder: Path) -> None:
    async def case(meeting: MeetingPlace) -> None:
        offer, before = meeting.offer(), os.listdir("/proc/self/fd")
        with free_descriptors(1), pytest.raises(LinkBroken, match="no socket can be had: Too many"):
            await hand_over(folder, offer)
        assert os.listdir("/proc/self/fd") == before

    run(folder, case)
