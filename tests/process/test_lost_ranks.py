"""A replica of several processes lives and dies as one, and its clients are told within seconds."""

import contextlib
import os
import re
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from outrider.client import Client, Unavailable
from outrider.contract.settings import Role
from outrider.worker.parallel.watchdog import MIN_SECONDS
from tests.process import workers
from tests.process.service_run import serving
from tests.process.workers import (
    PROMPT,
    START_SECONDS,
    Worker,
    alive,
    answer,
    until_helped,
    up_links,
    wait_until,
)
from tests.tiny_models import write_draft_of, write_slow_target

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="finds ranks in /proc")

LONG = 1500
"""Tokens of an answer that is not over when a rank is gone."""
SOON = MIN_SECONDS / 2
"""Seconds: sooner than a rank that is only waited for would be given up."""
SERVICE = """
apiVersion: outrider.dev/v1alpha1
kind: SpeculativeService
metadata: {{name: cut}}
spec:
  target:
    model: {{uri: "file://{target}"}}
    engine: {{dtype: fp32, maxRunning: 2, maxContext: 2048}}
    parallelism: {{tensor: 2}}
  draft:
    model: {{uri: "file://{draft}"}}
    engine: {{dtype: fp32, maxContext: 2048}}
    parallelism: {{tensor: 2}}
    placement: Separate
  speculation: {{mode: Static}}
"""


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    base = tmp_path_factory.mktemp("ranks")
    target = write_slow_target(base / "target", hidden=64, max_position_embeddings=2048)
    write_draft_of(target, base / "draft", noise=0.01, layers=2)
    return base


@pytest.fixture
def shared(models: Path) -> Iterator[Worker]:
    """A target of two ranks, which the test may end."""
    settings = workers.settings_for(
        Role.TARGET, models / "target", models / "cache", tensor_parallel=2, max_context=2048
    )
    with workers.started(settings, models) as worker:
        yield worker


def below(pid: int) -> list[int]:
    """Children of a process, theirs, and so on."""
    with contextlib.suppress(FileNotFoundError):
        listing = Path(f"/proc/{pid}/task/{pid}/children").read_text()
        listing += " ".join(
            task.read_text()
            for task in Path(f"/proc/{pid}/task").glob("*/children")
            if task.parent.name != str(pid)
        )
        own = [int(child) for child in listing.split()]
        return own + [further for child in own for further in below(child)]
    return []


def ranks_of(pid: int) -> list[int]:
    """Processes of ranks that follow, below a worker."""
    return [p for p in below(pid) if Path(f"/proc/{p}/cmdline").read_bytes().endswith(b"\0rank\0")]


@pytest.mark.parametrize("victim", ["follower", "leader"])
def test_a_killed_rank_takes_its_group_down(shared: Worker, victim: str) -> None:
    (engine,), (follower,) = shared.children(), ranks_of(shared.process.pid)
    killed: list[float] = []

    def kill() -> None:
        os.kill(follower if victim == "follower" else engine, signal.SIGKILL)
        killed.append(time.monotonic())

    with pytest.raises(Unavailable, match="engine"):
        answer(shared, LONG, {20: kill})
    assert time.monotonic() - killed[0] < SOON
    assert shared.process.wait(workers.END_SECONDS) == 1
    wait_until(lambda: not (alive(engine) or alive(follower)), SOON, "all ranks have ended")


def test_a_rank_that_dies_while_nothing_runs_takes_its_group_down(shared: Worker) -> None:
    (follower,) = ranks_of(shared.process.pid)
    os.kill(follower, signal.SIGKILL)
    assert shared.process.wait(workers.END_SECONDS) == 1


@pytest.mark.slow
def test_a_stopped_rank_is_given_up_after_a_while(shared: Worker) -> None:
    (follower,) = ranks_of(shared.process.pid)
    with pytest.raises(Unavailable, match="engine"):
        answer(shared, LONG, {20: lambda: os.kill(follower, signal.SIGSTOP)})
    assert shared.process.wait(workers.END_SECONDS) == 1
    wait_until(lambda: not alive(follower), SOON, "it was killed")
    assert re.search(r"a pass has not ended within \d+ s", shared.log.read_text())


def test_a_group_comes_back_as_one(models: Path, tmp_path: Path) -> None:
    """The YAML's ranks are started, and started again; a draft's loss costs no token."""
    file = tmp_path / "service.yaml"
    file.write_text(SERVICE.format(target=models / "target", draft=models / "draft"))
    with serving(file, tmp_path) as run, Client(run.address, timeout=120.0) as client:
        wait_until(lambda: up_links(client.state()) != [], START_SECONDS, "the draft")
        target, draft = run.pid("cut-target-0"), run.pid("cut-draft-0")
        (of_draft,), (of_target,) = ranks_of(draft), ranks_of(target)
        whole = until_helped(lambda: client.complete(PROMPT, max_tokens=300, ignore_end=True))
        with client.generate(PROMPT, max_tokens=300, ignore_end=True) as stream:
            next(stream)
            os.kill(of_draft, signal.SIGKILL)
            list(stream)
            assert stream.result.token_ids == whole.token_ids
        wait_until(lambda: "cut-draft-0 serves again" in run.notes, START_SECONDS, "the draft")
        with client.generate(PROMPT, max_tokens=LONG, ignore_end=True) as stream:
            next(stream)
            os.kill(of_target, signal.SIGKILL)
            with pytest.raises(Unavailable):
                list(stream)
        wait_until(lambda: "cut-target-0 serves again" in run.notes, START_SECONDS, "the target")
        wait_until(lambda: up_links(client.state()) != [], START_SECONDS, "a link")
        again = until_helped(lambda: client.complete(PROMPT, max_tokens=300, ignore_end=True))
        assert again.token_ids == whole.token_ids
