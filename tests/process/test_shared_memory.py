"""A target and a draft that share memory: the same text, and a fall-back that costs no token."""

import mmap
import os
import re
import resource
import signal
import struct
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from outrider.client import Link, LinkState
from outrider.contract.settings import LinkTransport, Role
from outrider.worker.link.memory_file import FILE_BYTES, HEAD_BYTES
from tests.process import workers
from tests.process.conftest import Folders
from tests.process.workers import Worker, answer, assert_speculated, let_grow, pair_with

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="memory files are Linux's")

COUNT = 400
LEFT_OVER = 64
"""Tokens after the end of a link that its last guesses may still have helped with."""


@pytest.fixture(scope="module")
def link_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder whose path is too long for a socket's."""
    folder = tmp_path_factory.mktemp("link") / ("long" * 30)
    folder.mkdir()
    return folder


@pytest.fixture
def near_target(folders: Folders, link_dir: Path) -> Iterator[Worker]:
    settings = folders.settings(Role.TARGET, link_dir=str(link_dir))
    with workers.started(settings, folders.logs) as worker:
        yield worker


@pytest.fixture
def near_draft(folders: Folders, link_dir: Path) -> Iterator[Worker]:
    settings = folders.settings(Role.DRAFT, link_dir=str(link_dir))
    with workers.started(settings, folders.logs) as worker:
        yield worker


def link_of(target: Worker) -> Link:
    (link,) = target.client.state().links
    return link


def shared_files(worker: Worker) -> list[Path]:
    """Memory that a process of the worker shares, mapped or open."""
    maps = (Path(f"/proc/{pid}/map_files") for pid in (*worker.children(), worker.process.pid))
    return [
        entry
        for folder in maps
        for entry in folder.iterdir()
        if os.readlink(entry).startswith("/memfd:outrider-link")
    ]


def overwrite(worker: Worker, offset: int, data: bytes) -> None:
    """Write to the memory that a worker shares, as a process that has gone mad would."""
    (file,) = shared_files(worker)
    descriptor = os.open(file, os.O_RDWR)
    with mmap.mmap(descriptor, FILE_BYTES) as memory:
        memory[offset : offset + len(data)] = data
    os.close(descriptor)


def test_a_pair_that_shares_memory_writes_the_same_text(
    near_target: Worker, near_draft: Worker, plain: tuple[int, ...]
) -> None:
    pair_with(near_target, near_draft.address)
    assert link_of(near_target).transport == LinkTransport.SHARED_MEMORY
    given = answer(near_target, COUNT, {100: lambda: let_grow(near_target, near_draft)})
    assert given.tokens == plain[:COUNT]
    assert_speculated(given)


def grow_later(target: Worker, draft: Worker) -> None:
    """Let the next session help, once it is open."""
    draft.until(lambda state: state.running == 1)
    let_grow(target, draft)


def overwrite_words(target: Worker, draft: Worker) -> None:
    overwrite(target, 0, struct.pack("<512q", *512 * [-7]))


def overwrite_records(target: Worker, draft: Worker) -> None:
    """Those that a stopped draft has not read."""
    draft.signal_all(signal.SIGSTOP)
    steps = target.client.state().counters.steps
    target.until(lambda state: state.counters.steps > steps + 3)
    overwrite(target, HEAD_BYTES, b"\xff" * (FILE_BYTES - HEAD_BYTES))
    draft.signal_all(signal.SIGCONT)


@pytest.mark.parametrize("madness", [overwrite_words, overwrite_records])
def test_memory_that_is_overwritten_costs_no_token(
    near_target: Worker,
    near_draft: Worker,
    plain: tuple[int, ...],
    madness: Callable[[Worker, Worker], None],
) -> None:
    pair_with(near_target, near_draft.address)

    def overwrite_it() -> None:
        madness(near_target, near_draft)

    def grow_by_grpc() -> None:
        near_target.until(lambda state: state.links[0].transport == LinkTransport.GRPC)
        grow_later(near_target, near_draft)

    given = answer(
        near_target,
        COUNT,
        {70: lambda: let_grow(near_target, near_draft), 100: overwrite_it, 200: grow_by_grpc},
    )
    assert given.tokens == plain[:COUNT]
    assert given.accepted(end=100) > 0
    assert given.accepted(start=200) > 0
    link = link_of(near_target)
    assert link.state is LinkState.UP
    assert "gRPC stands in for shared memory" in link.detail
    assert re.search(
        "goes over gRPC for 60 s: .*(written|read|record)", near_target.log.read_text()
    )
    assert near_draft.process.poll() is None


def test_a_killed_draft_shares_memory_again_after_it_returns(
    near_target: Worker, folders: Folders, link_dir: Path, plain: tuple[int, ...]
) -> None:
    settings = folders.settings(Role.DRAFT, link_dir=str(link_dir))
    with workers.started(settings, folders.logs) as first:
        pair_with(near_target, first.address)

        def kill() -> None:
            first.kill_all()

        events = {70: lambda: let_grow(near_target, first), 100: kill}
        given = answer(near_target, COUNT, events)
        assert given.tokens == plain[:COUNT]
        assert given.accepted(end=100) > 0
    with workers.started(settings, folders.logs) as second:
        near_target.until(lambda state: state.links[0].state is LinkState.UP)
        assert link_of(near_target).transport == LinkTransport.SHARED_MEMORY
        given = answer(near_target, COUNT, {100: lambda: let_grow(near_target, second)})
    assert given.tokens == plain[:COUNT]
    assert_speculated(given)


def test_a_draft_in_another_folder_is_met_by_grpc(
    near_target: Worker, folders: Folders, tmp_path: Path, plain: tuple[int, ...]
) -> None:
    settings = folders.settings(Role.DRAFT, link_dir=str(tmp_path))
    with workers.started(settings, folders.logs) as draft:
        pair_with(near_target, draft.address)
        link = link_of(near_target)
        assert link.transport == LinkTransport.GRPC
        assert re.search("cannot be met at .*: No such file", link.detail)
        given = answer(near_target, COUNT, {100: lambda: let_grow(near_target, draft)})
    assert given.tokens == plain[:COUNT]
    assert_speculated(given)
    assert list(tmp_path.iterdir()) == [], "a draft that ends leaves no socket"


def test_memory_that_is_full_is_named_and_grpc_taken(
    near_target: Worker, near_draft: Worker, plain: tuple[int, ...]
) -> None:
    (engine,) = near_target.children()
    hard = resource.prlimit(engine, resource.RLIMIT_FSIZE)[1]
    resource.prlimit(engine, resource.RLIMIT_FSIZE, (FILE_BYTES - 1, hard))
    pair_with(near_target, near_draft.address)
    link = link_of(near_target)
    assert link.transport == LinkTransport.GRPC
    assert "516 KiB of memory cannot be shared: File too large" in link.detail
    given = answer(near_target, COUNT, {100: lambda: let_grow(near_target, near_draft)})
    assert given.tokens == plain[:COUNT]
    assert_speculated(given)


@pytest.mark.parametrize("role", Role)
def test_a_pair_that_cannot_share_what_is_named_is_refused(
    folders: Folders, tmp_path: Path, target: Worker, draft: object, role: Role
) -> None:
    """The other side is one without a folder."""
    near = {"link": LinkTransport.SHARED_MEMORY, "link_dir": str(tmp_path)}
    with workers.started(folders.settings(role, **near), folders.logs) as worker:
        ours = worker if role is Role.TARGET else target
        theirs = draft.worker if role is Role.TARGET else worker  # type: ignore[attr-defined]
        pair_with(ours, theirs.address, up=False)
        (link,) = ours.until(lambda s: s.links[0].state is LinkState.REFUSED).links
        assert f"settings.link of the {role} is shared_memory" in link.detail
        pair_with(ours)


@pytest.mark.parametrize("role", Role)
def test_a_worker_that_cannot_share_what_is_named_does_not_start(
    folders: Folders, tmp_path: Path, role: Role
) -> None:
    near = {"link": LinkTransport.SHARED_MEMORY, "link_dir": str(tmp_path / "none")}
    worker = workers.launch(folders.settings(role, **near), folders.logs)
    try:
        assert worker.process.wait(workers.START_SECONDS) == 2
    finally:
        workers.stop(worker)
    assert "settings.link: shared_memory is not possible" in worker.log.read_text()
