"""A target and a draft linked by torch.distributed: the same text, and no token lost with it."""

import contextlib
import ctypes
import os
import re
import socket
import stat
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from outrider.client import Link, LinkState
from outrider.contract.settings import LinkTransport, Role
from tests.process import workers
from tests.process.conftest import Folders
from tests.process.workers import Worker, answer, assert_speculated, let_grow, pair_with

COUNT = 400
NAMED = {"link": LinkTransport.DISTRIBUTED}
LIBC = ctypes.CDLL(None, use_errno=True)
PIDFD_GETFD = 438
"""Number of the system call, on every processor."""


@pytest.fixture(scope="module")
def far_target(folders: Folders) -> Iterator[Worker]:
    with workers.started(folders.settings(Role.TARGET, **NAMED), folders.logs) as worker:
        yield worker


@pytest.fixture(scope="module")
def far_draft(folders: Folders) -> Iterator[Worker]:
    with workers.started(folders.settings(Role.DRAFT, **NAMED), folders.logs) as worker:
        yield worker


@pytest.fixture
def broken_pair(folders: Folders) -> Iterator[tuple[Worker, Worker]]:
    """A target and a draft of a test's own, whose group will not do again for a minute."""
    with contextlib.ExitStack() as stack:
        target, draft = (
            stack.enter_context(workers.started(folders.settings(role, **NAMED), folders.logs))
            for role in (Role.TARGET, Role.DRAFT)
        )
        yield target, draft


def link_of(target: Worker) -> Link:
    (link,) = target.client.state().links
    return link


def cut(draft: Worker) -> None:
    """End every connection of the draft's group with its target, as a network would."""
    pid, kept = draft.process.pid, {int(draft.address.rpartition(":")[2])}
    pidfd = os.pidfd_open(pid)
    for name in os.listdir(f"/proc/{pid}/fd"):
        descriptor = LIBC.syscall(PIDFD_GETFD, pidfd, int(name), 0)
        if descriptor < 0:
            continue  # it is closed by now
        if not stat.S_ISSOCK(os.fstat(descriptor).st_mode):
            os.close(descriptor)
            continue
        with socket.socket(fileno=descriptor) as end, contextlib.suppress(OSError):
            if end.family in (socket.AF_INET, socket.AF_INET6):
                ports = {end.getsockname()[1], end.getpeername()[1]}
                if not ports & kept:
                    end.shutdown(socket.SHUT_RDWR)
    os.close(pidfd)


def grow_later(target: Worker, draft: Worker) -> None:
    """Let the next session help, once it is open."""
    draft.until(lambda state: state.running == 1)
    let_grow(target, draft)


def test_a_pair_writes_the_same_text(
    far_target: Worker, far_draft: Worker, plain: tuple[int, ...]
) -> None:
    pair_with(far_target, far_draft.address)
    link = link_of(far_target)
    assert (link.transport, link.detail) == (LinkTransport.DISTRIBUTED, "")
    given = answer(far_target, COUNT, {100: lambda: let_grow(far_target, far_draft)})
    assert given.tokens == plain[:COUNT]
    assert_speculated(given)


def test_a_target_has_a_group_with_each_of_its_drafts(
    far_target: Worker, far_draft: Worker, folders: Folders, plain: tuple[int, ...]
) -> None:
    with workers.started(folders.settings(Role.DRAFT, **NAMED), folders.logs) as other:
        pair_with(far_target, far_draft.address, other.address)
        transports = {link.transport for link in far_target.client.state().links}
        assert transports == {LinkTransport.DISTRIBUTED}
        assert answer(far_target, COUNT).tokens == plain[:COUNT]


def test_a_draft_that_is_killed_costs_no_token_and_is_joined_again(
    far_target: Worker, folders: Folders, plain: tuple[int, ...]
) -> None:
    settings = folders.settings(Role.DRAFT, **NAMED)
    with workers.started(settings, folders.logs) as first:
        pair_with(far_target, first.address)
        events = {70: lambda: let_grow(far_target, first), 100: first.kill_all}
        given = answer(far_target, COUNT, events)
        assert given.tokens == plain[:COUNT]
        assert given.accepted(end=100) > 0
    with workers.started(settings, folders.logs) as second:
        far_target.until(lambda state: state.links[0].state is LinkState.UP)
        assert link_of(far_target).transport == LinkTransport.DISTRIBUTED
        given = answer(far_target, COUNT, {100: lambda: let_grow(far_target, second)})
    assert given.tokens == plain[:COUNT]
    assert_speculated(given)


@pytest.mark.skipif(sys.platform != "linux", reason="connections are found in /proc")
def test_a_group_that_breaks_costs_no_token(
    broken_pair: tuple[Worker, Worker], plain: tuple[int, ...]
) -> None:
    target, draft = broken_pair
    pair_with(target, draft.address)

    def grow_by_grpc() -> None:
        target.until(lambda state: state.links[0].transport == LinkTransport.GRPC)
        grow_later(target, draft)

    given = answer(
        target,
        COUNT,
        {
            70: lambda: let_grow(target, draft),
            100: lambda: cut(draft),
            200: grow_by_grpc,
        },
    )
    assert given.tokens == plain[:COUNT]
    assert given.accepted(end=100) > 0
    assert given.accepted(start=200) > 0
    link = link_of(target)
    assert link.state is LinkState.UP
    assert "gRPC stands in for torch.distributed: " in link.detail
    assert re.search("goes over gRPC for 60 s: ", target.log.read_text())
    assert draft.process.poll() is None


@pytest.mark.parametrize("role", Role)
def test_a_pair_of_which_one_names_it_is_refused(
    folders: Folders, target: Worker, draft: object, role: Role
) -> None:
    """The other side chooses what it can have."""
    with workers.started(folders.settings(role, **NAMED), folders.logs) as worker:
        ours = worker if role is Role.TARGET else target
        theirs = draft.worker if role is Role.TARGET else worker  # type: ignore[attr-defined]
        pair_with(ours, theirs.address, up=False)
        (link,) = ours.until(lambda s: s.links[0].state is LinkState.REFUSED).links
        other = Role.DRAFT if role is Role.TARGET else Role.TARGET
        assert (
            f"settings.link of the {role} is distributed, of the {other} it is not" in link.detail
        )
        pair_with(ours)


@pytest.mark.parametrize("role", Role)
def test_a_worker_without_torch_distributed_does_not_start(
    folders: Folders, tmp_path: Path, role: Role, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its torch is one that is built without."""
    (tmp_path / "torch" / "distributed").mkdir(parents=True)
    (tmp_path / "torch" / "__init__.py").write_text("")
    (tmp_path / "torch" / "distributed" / "__init__.py").write_text(
        "def is_available():\n    return False\n"
    )
    path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    monkeypatch.setenv("PYTHONPATH", path)
    worker = workers.launch(folders.settings(role, **NAMED), folders.logs)
    try:
        assert worker.process.wait(workers.START_SECONDS) != 0
    finally:
        workers.stop(worker)
    says = "settings.link: distributed is not possible: torch is built without torch.distributed"
    assert says in worker.log.read_text()
