"""A service with two targets, of which one is killed under load."""

import asyncio
import contextlib
import json
import os
import signal
import sys
import threading
from collections.abc import Iterator
from concurrent import futures
from pathlib import Path

import pytest

from outrider.cli.local.workers import LocalWorkers
from outrider.cli.run.prompts import PromptSet
from outrider.cli.run.run import RunOptions, run
from outrider.cli.workers.supervisor import StartOptions
from outrider.client import Client, Stream, Unavailable
from outrider.contract.settings import Role
from outrider.operator.plan import PlanOptions, plan
from outrider.operator.spec import load
from tests.process import workers
from tests.process.conftest import Folders
from tests.process.fake_run import WORKER
from tests.process.workers import ANSWER_SECONDS, PROMPT, Worker, wait_until

SERVICE = """
apiVersion: outrider.dev/v1alpha1
kind: SpeculativeService
metadata: {name: fine}
spec:
  target: {model: {uri: "package://p/target.gguf"}, replicas: 2}
  draft: {model: {uri: "package://p/draft.gguf"}}
"""
SECONDS = 60.0
CALLERS = 8
TOKENS = 40
LONG = 1800
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="workers need Linux here")


class Quiet:
    """A reporter of which nobody reads anything."""

    def stage(self, name: str, stage: str, done: int = 0, total: int = 0) -> None:
        """Not of interest."""

    def finish(self, name: str) -> None:
        """Not of interest."""

    def note(self, text: str) -> None:
        """Not of interest."""

    def clear(self) -> None:
        """Nothing moves."""

    def started(self) -> None:
        """Not of interest."""


class Load:
    """Threads that ask one client over and over; `seen` holds the process ids that answered."""

    def __init__(self, client: Client) -> None:
        self.seen: set[int] = set()
        self._client = client
        self._enough = threading.Event()

    def _ask(self) -> None:
        while not self._enough.is_set():
            self.seen.add(int(self._client.complete("turn").text.split()[0]))

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """Raises what any of the threads raised."""
        with futures.ThreadPoolExecutor(CALLERS) as pool:
            asking = [pool.submit(self._ask) for _ in range(CALLERS)]
            try:
                yield
            finally:
                self._enough.set()
            for one in asking:
                one.result()


def kept(client: Client, pid: int) -> Stream:
    """A stream in the middle of its answer at the target with this process id."""
    while True:
        stream = client.generate("keep")
        if next(stream).text == str(pid):
            return stream
        stream.close()


def kill_one_under_load(made: LocalWorkers) -> None:
    victim = made.targets[0]
    assert victim.pid
    pid, killed = victim.pid, victim.address
    with Client(made.addresses, timeout=SECONDS) as client, Client(killed, timeout=SECONDS) as own:
        load, stream = Load(client), kept(client, pid)
        with load.running():
            wait_until(lambda: own.state().waiting == CALLERS, SECONDS, "all callers wait there")
            os.kill(pid, signal.SIGKILL)
            with pytest.raises(Unavailable, match=r"\(after 1 token\)$"):
                next(stream)
            wait_until(lambda: made.targets[1].pid in load.seen, SECONDS, "the other one answers")
            assert pid not in load.seen
            wait_until(lambda: victim.pid in load.seen, SECONDS, "the next life gets calls")
        assert victim.address == killed
        assert (victim.restarts, made.targets[1].restarts) == (1, 0)


def test_one_of_two_targets_is_killed_and_no_request_without_a_token_is_lost(
    tmp_path: Path,
) -> None:
    planned = plan(load(SERVICE), PlanOptions(cache=str(tmp_path)))
    start = StartOptions(PlanOptions(), Quiet(), WORKER, tmp_path / "runs")
    made = LocalWorkers(planned, start)

    async def body() -> None:
        async with made:
            await made.run(lambda: asyncio.to_thread(kill_one_under_load, made))

    asyncio.run(body())


def test_a_target_pairs_with_the_draft_of_its_own_pod_alone(tmp_path: Path) -> None:
    text = SERVICE.replace(
        '"package://p/draft.gguf"}', '"package://p/draft.gguf"}, placement: SamePod'
    )
    planned = plan(load(text), PlanOptions(cache=str(tmp_path)))
    start = StartOptions(PlanOptions(), Quiet(), WORKER, tmp_path / "runs")
    made = LocalWorkers(planned, start)
    told = []

    async def ask() -> None:
        for target in made.targets:
            async with target.client(SECONDS) as client:
                told.append((await client.state()).policy.drafts)

    async def body() -> None:
        async with made:
            await made.run(ask)

    asyncio.run(body())
    drafts = [one.address for one in made.supervisors if one.worker.role is Role.DRAFT]
    assert len(drafts) == 2
    assert told == [(address,) for address in drafts]


def test_a_prompt_is_answered_by_a_service_of_two_targets(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = RunOptions(
        service=load(SERVICE),
        plan=PlanOptions(cache=str(tmp_path)),
        questions=PromptSet(prompts=["turn", "turn"], raw=True),
        as_json=True,
        worker_command=WORKER,
        run_folder=tmp_path / "runs",
    )
    asyncio.run(run(options))
    assert json.loads(capsys.readouterr().out)["tokens"] > 0


def begun(client: Client, target: Worker) -> Stream:
    """A long answer that has begun at this target."""
    while True:
        before = target.client.state().running
        stream = client.generate(PROMPT, max_tokens=LONG, ignore_end=True)
        next(stream)
        if target.client.state().running > before:
            return stream
        stream.close()


def test_real_targets_keep_a_waiting_request_free_to_go_to_another(
    folders: Folders, plain: tuple[int, ...]
) -> None:
    """A server that sent anything before the first token would bind the request to itself."""
    with contextlib.ExitStack() as stack:
        victim, other = (
            stack.enter_context(workers.started(folders.settings(Role.TARGET), folders.logs))
            for _ in range(2)
        )
        both = (victim.address, other.address)
        client = stack.enter_context(Client(both, timeout=ANSWER_SECONDS))
        stream = begun(client, victim)
        pool = stack.enter_context(futures.ThreadPoolExecutor(CALLERS))
        asking = [
            pool.submit(client.complete, PROMPT, max_tokens=TOKENS, ignore_end=True)
            for _ in range(CALLERS)
        ]
        victim.until(lambda state: state.waiting > 0)
        victim.kill_all()
        with pytest.raises(Unavailable, match=r"\(after \d+ tokens?\)$"):
            for _ in stream:
                pass
        assert {one.result().token_ids for one in asking} == {plain[:TOKENS]}
