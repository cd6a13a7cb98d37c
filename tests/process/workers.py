"""Real worker processes for tests: started, watched, killed.

with started(settings, tmp_path) as worker:
    worker.client.complete("Once")
"""

import contextlib
import dataclasses
import itertools
import os
import signal
import socket
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from outrider.client import Chunk, Client, ClientError, LinkState, PolicySettings, Result, State
from outrider.contract.settings import Dtype, ModelSettings, Role, WorkerSettings
from outrider.contract.sources import SourceKind
from tests.ports import free_port

START_SECONDS = 480.0
"""Far more than a start takes: one that compiles all kernels on a machine with eight times as much
to do as it has processors takes two minutes. Who waits longer has seen a fault."""
END_SECONDS = 30.0
ANSWER_SECONDS = 120.0
MIN_PAUSE, MAX_PAUSE = 0.01, 0.1
"""Seconds between two looks at what is waited for: each costs the worker that it looks at a
request."""
HITS = 0.4
"""Share of first guesses that the tests' drafts, which are hardly noisy, get right at least: about
0.7."""
FEW = 3
"""Wrong guesses too many that say nothing."""
PROMPT = "Once upon a time"
NOTHING: Mapping[int, Callable[[], object]] = MappingProxyType({})


@dataclass
class Worker:
    """One running worker."""

    settings: WorkerSettings
    process: "subprocess.Popen[bytes]"
    client: Client
    log: Path
    _listened: bool = False

    @property
    def address(self) -> str:
        """Where it listens."""
        return self.settings.listen

    @property
    def url(self) -> str:
        """Where it answers HTTP."""
        return f"http://{self.settings.http_listen}"

    def children(self) -> list[int]:
        """Process ids below this worker's own."""
        listing = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text()
        return [int(pid) for pid in listing.split()]

    def kill(self) -> None:
        """SIGKILL to the server process; its engine has to notice by itself."""
        self.process.kill()
        self.process.wait()

    def kill_all(self) -> None:
        """SIGKILL to server and engine at once, as when a pod is lost."""
        self.signal_all(signal.SIGKILL)
        self.process.wait()

    def signal_all(self, number: int) -> None:
        """Sends a signal to the engine and the server process."""
        for pid in (*self.children(), self.process.pid):
            os.kill(pid, number)

    def until(self, holds: Callable[[State], bool], seconds: float = START_SECONDS) -> State:
        """Waits until the state satisfies `holds`."""
        last: list[State] = []

        def check() -> bool:
            assert self.process.poll() is None, f"{self.settings.role} died; log:\n{self.tail()}"
            if not self.listens():
                return False
            with contextlib.suppress(ClientError):
                last[:] = [self.client.state(timeout=5)]
                return holds(last[0])
            return False

        wait_until(check, seconds, lambda: f"{self.settings.role}; log:\n{self.tail()}")
        return last[0]

    def listens(self) -> bool:
        """Whether it took a connection once: a client that is refused asks again after seconds."""
        host, _, port = self.address.rpartition(":")
        if not self._listened:
            with contextlib.suppress(OSError):
                socket.create_connection((host, int(port)), 5.0).close()
                self._listened = True
        return self._listened

    def tail(self) -> str:
        """The end of its log."""
        return self.log.read_text()[-3000:]


def wait_until(holds: Callable[[], bool], seconds: float, what: str | Callable[[], str]) -> None:
    """Polls until `holds`, or fails after `seconds`; what takes long is looked at less often.

    `what` did not come, or what says so then.
    """
    began = time.monotonic()
    while not holds():
        waited = time.monotonic() - began
        if waited > seconds:
            raise AssertionError(
                f"not within {seconds} s: {what if isinstance(what, str) else what()}"
            )
        time.sleep(min(max(MIN_PAUSE, waited / 20), MAX_PAUSE))


def settings_for(
    role: Role, model: Path, cache: Path, port: int | None = None, **changes: object
) -> WorkerSettings:
    """Settings of a worker on loopback in fp32."""
    base = WorkerSettings(
        role=role,
        name="tiny",
        model=ModelSettings(uri=f"file://{model}", dtype=Dtype.FP32),
        listen=f"127.0.0.1:{port or free_port()}",
        cache=str(cache),
        max_running=4 if role is Role.DRAFT else 1,
        http_listen=f"127.0.0.1:{free_port()}",
    )
    return dataclasses.replace(base, **changes)  # type: ignore[arg-type]


@contextlib.contextmanager
def started(settings: WorkerSettings, scratch: Path, ready: bool = True) -> Iterator[Worker]:
    """A worker, ended with the block whatever happens in it."""
    worker = launch(settings, scratch)
    try:
        if ready:
            worker.until(lambda state: state.ready)
        yield worker
    finally:
        stop(worker)


def launch(settings: WorkerSettings, scratch: Path) -> Worker:
    """Starts a worker without waiting for it."""
    name = f"{settings.role}-{time.monotonic_ns()}"
    file, log = scratch / f"{name}.json", scratch / f"{name}.log"
    file.write_text(settings.to_json())
    with log.open("wb") as stderr:
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "outrider.worker", "serve", "--settings", str(file)],
            stdin=subprocess.DEVNULL,
            stdout=stderr,
            stderr=stderr,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )
    return Worker(settings, process, Client(settings.listen), log)


def stop(worker: Worker) -> None:
    """SIGTERM, then SIGKILL."""
    worker.client.close()
    if worker.process.poll() is None:
        worker.process.send_signal(signal.SIGTERM)
        try:
            worker.process.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            worker.kill()
            raise


@contextlib.contextmanager
def held(target: Worker) -> Iterator[None]:
    """The target does nothing until the block is left, and knows nothing of the time it takes."""
    target.signal_all(signal.SIGSTOP)
    try:
        yield
    finally:
        target.signal_all(signal.SIGCONT)


def let_grow(
    target: Worker, draft: Worker, nothing_on_its_way: Callable[[], bool] = lambda: True
) -> None:
    """Holds the target until its draft has drafted all that it may, and so rests.

    Whatever a machine has time for, the target then has a full tree for its next pass.
    """

    if sys.platform != "linux":
        return  # whether it rests cannot be seen
    pids = (draft.process.pid, *draft.children())

    def grown() -> bool:
        return rests(*pids) and nothing_on_its_way() and rests(*pids)

    with held(target):
        wait_until(grown, START_SECONDS, "the draft rests")


def until_helped(ask: Callable[[], Result]) -> Result:
    """Asks until drafts have helped with an answer; their help with any one is a matter of time."""
    deadline = time.monotonic() + START_SECONDS
    while not (result := ask()).usage.accepted_rows:
        assert time.monotonic() < deadline, "drafts help with no answer"
    return result


def rests(*pids: int) -> bool:
    """True if no thread of these processes computes, or waits for a processor to do so."""
    with contextlib.suppress(FileNotFoundError):  # a thread has just ended
        files = (file for pid in pids for file in Path(f"/proc/{pid}/task").glob("*/stat"))
        threads = [file.read_text() for file in files]
        return all(thread.rpartition(")")[2].split()[0] == "S" for thread in threads)
    return False


def pair_with(
    target: Worker,
    *drafts: str,
    up: bool = True,
    speculate: bool = True,
    sources: tuple[SourceKind, ...] = (SourceKind.DRAFT,),
    **changes: Any,
) -> None:
    """Links a target to the drafts at these addresses and to no others; waits until they are up.

    Drafting stays on whatever it gains: timings of a shared machine decide nothing here.
    """
    policy = PolicySettings(
        version=target.client.state().policy.version + 1,
        speculate=speculate,
        off_below_percent=0,
        drafts=drafts,
        sources=sources,
        **changes,
    )
    target.client.set_policy(policy)
    if up:
        target.until(lambda state: len(up_links(state)) == len(drafts))


def up_links(state: State) -> list[str]:
    """Addresses of the drafts that a target can use."""
    return [link.address for link in state.links if link.state is LinkState.UP]


@dataclass(frozen=True, slots=True)
class Answer:
    """One answer, chunk by chunk."""

    result: Result
    chunks: list[Chunk]

    @property
    def tokens(self) -> tuple[int, ...]:
        """All of them."""
        return self.result.token_ids

    def accepted(self, start: int = 0, end: int = 1 << 30) -> int:
        """Draft rows accepted in passes whose tokens came in chunks from `start` to `end`."""
        begins = itertools.accumulate((len(c.token_ids) for c in self.chunks), initial=0)
        return sum(
            len(chunk.token_ids) - chunk.passes
            for at, chunk in zip(begins, self.chunks, strict=False)
            if start <= at < end
        )


def answer(
    target: Worker, count: int, at: Mapping[int, Callable[[], object]] = NOTHING, **options: Any
) -> Answer:
    """Streams an answer of `count` tokens; calls each action of `at` once so many have come."""
    actions = deque(sorted(at.items()))
    chunks: list[Chunk] = []
    come = 0
    given = {"ignore_end": True, "timeout": ANSWER_SECONDS, **options}
    with target.client.generate(PROMPT, max_tokens=count, **given) as stream:
        for chunk in stream:
            if chunk.token_ids:
                chunks.append(chunk)
                come += len(chunk.token_ids)
            while actions and come >= actions[0][0]:
                actions.popleft()[1]()
        return Answer(stream.result, chunks)


def assert_speculated(answer: Answer, hits: float = HITS) -> None:
    """Draft rows were accepted, and of the draft's first guesses at least this share was right.

    How many are right is up to the models. How many come in time is up to the machine: that is no
    test's concern.
    """
    usage = answer.result.usage
    assert usage.accepted_rows > 0
    assert usage.first_hits + FEW >= hits * usage.first_guesses, usage


def alive(pid: int) -> bool:
    """Whether a process still runs (a zombie does not)."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False
