"""A pipelined target whose stages die, stop and come back: no token is lost, and nothing hangs."""

import contextlib
import os
import re
import signal
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest

from outrider.client import ClientError
from outrider.contract.settings import PipelineSettings, Role
from tests.process import workers
from tests.process.conftest import Folders, MortalDraft
from tests.process.workers import PROMPT, Worker, answer, pair_with, wait_until

COUNT = 200
STAGES = 2
SILENCE_MS = 2_000
"""So short that a stage that stopped is missed soon, and not so that a busy machine is."""
SECONDS = 120.0


@pytest.fixture(scope="module")
def pipelined(folders: Folders) -> Iterator[Worker]:
    pipeline = PipelineSettings(stages=STAGES, cut=(1, 49), silence_ms=SILENCE_MS)
    settings = folders.settings(Role.TARGET, pipeline=pipeline, max_running=2, queue_seconds=1)
    with workers.started(settings, folders.logs) as worker:
        yield worker


def stage_pid(target: Worker, stage: int) -> int:
    """The process of a stage that the worker has started."""
    for pid in target.children():
        with contextlib.suppress(FileNotFoundError):
            if settings_file(pid).name == f"stage-{stage}.json":
                return pid
    raise AssertionError(f"stage {stage} does not run")


def next_pid(target: Worker, stage: int, lost: int) -> int:
    """The process of a stage's next life."""
    found = [lost]

    def began() -> bool:
        with contextlib.suppress(AssertionError):
            found[:] = [stage_pid(target, stage)]
        return found != [lost]

    wait_until(began, SECONDS, "the stage starts again")
    return found[0]


def settings_file(pid: int) -> Path:
    """The settings with which a process was started; of an engine, nothing."""
    words = Path(f"/proc/{pid}/cmdline").read_text().split("\0")
    return Path(words[words.index("--settings") + 1]) if "--settings" in words else Path()


def stop(target: Worker, stage: int) -> None:
    """Stops a stage, which is then missed, and ended by its worker: nobody lets it go on."""
    pid = stage_pid(target, stage)
    os.kill(pid, signal.SIGSTOP)
    state = target.until(lambda state: not state.ready, SECONDS)
    assert state.stages is not None
    assert not state.stages.up
    assert re.match(r"stage [01] ", state.stages.detail)  # which of them saw it, or was it
    wait_until(lambda: not workers.alive(pid), SECONDS, "the stopped stage is ended")


@contextlib.contextmanager
def missing(target: Worker, stage: int) -> Iterator[None]:
    """A stage that ends, and cannot start again before the block is left."""
    pid = stage_pid(target, stage)
    settings = settings_file(pid)
    text = settings.read_text()
    settings.write_text("{}")
    try:
        os.kill(pid, signal.SIGKILL)
        target.until(lambda state: not state.ready, SECONDS)
        yield
    finally:
        settings.write_text(text)


@pytest.mark.parametrize("victim", range(STAGES))
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_a_stage_that_goes_and_comes_back_costs_no_token(
    plain: tuple[int, ...],
    pipelined: Worker,
    draft: MortalDraft,
    victim: int,
    number: signal.Signals,
) -> None:
    pipelined.until(lambda state: state.ready)
    pair_with(pipelined, draft.address)

    def strike() -> None:
        if number is signal.SIGKILL:
            os.kill(stage_pid(pipelined, victim), number)
        else:
            stop(pipelined, victim)

    given = answer(pipelined, COUNT, {COUNT // 2: strike})
    assert given.tokens == plain[:COUNT]
    assert given.accepted(end=COUNT // 2) > 0
    pipelined.until(lambda state: state.ready)


def test_a_stage_that_is_stopped_while_it_loads_is_ended_and_starts_again(
    pipelined: Worker,
) -> None:
    pipelined.until(lambda state: state.ready)
    before = answer(pipelined, 20).tokens
    lost = stage_pid(pipelined, 1)
    os.kill(lost, signal.SIGKILL)
    again = next_pid(pipelined, 1, lost)
    os.kill(again, signal.SIGSTOP)
    wait_until(lambda: not workers.alive(again), SECONDS, "the stopped stage is ended")
    pipelined.until(lambda state: state.ready)
    assert answer(pipelined, 20).tokens == before


def test_while_a_stage_is_missing_requests_end_and_nothing_hangs(
    plain: tuple[int, ...], pipelined: Worker
) -> None:
    pipelined.until(lambda state: state.ready)
    with pipelined.client.generate(PROMPT, max_tokens=1800, ignore_end=True) as stream:
        next(iter(stream))
        with missing(pipelined, 1):
            with pytest.raises(ClientError, match="stage 1") as caught:
                pipelined.client.complete(PROMPT, max_tokens=8, timeout=SECONDS)
            assert caught.value.status is grpc.StatusCode.UNAVAILABLE
            pipelined.until(lambda state: state.waiting == 1, SECONDS)
            stream.close()
            pipelined.until(lambda state: state.waiting == 0, SECONDS)
    pipelined.until(lambda state: state.ready)
    assert answer(pipelined, 20).tokens == plain[:20]


def test_what_a_lost_target_leaves_ends(folders: Folders) -> None:
    pipeline = PipelineSettings(stages=STAGES, silence_ms=SILENCE_MS)
    settings = folders.settings(Role.TARGET, pipeline=pipeline)
    with workers.started(settings, folders.logs) as worker:
        children = worker.children()
        assert len(children) == 1 + STAGES
        worker.kill()
        wait_until(
            lambda: not any(workers.alive(pid) for pid in children), SECONDS, "all have ended"
        )
