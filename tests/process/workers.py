"""Real worker processes for tests: started, watched, killed.

with started(settings, tmp_path) as worker:
    worker.client.complete("Once")
"""

import contextlib
import dataclasses
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from outrider.client import Client, ClientError, PolicySettings, State
from outrider.contract.settings import Dtype, ModelSettings, Role, WorkerSettings

START_SECONDS = 120.0
END_SECONDS = 30.0


@dataclass
class Worker:
    """One running worker."""

    settings: WorkerSettings
    process: "subprocess.Popen[bytes]"
    client: Client
    log: Path

    @property
    def address(self) -> str:
        """Where it listens."""
        return self.settings.listen

    def children(self) -> list[int]:
        """Process ids below this worker's own."""
        listing = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text()
        return [int(pid) for pid in listing.split()]

    def kill(self) -> None:
        """SIGKILL to the server process; its engine has to notice by itself."""
        self.process.kill()
        self.process.wait()

    def until(self, holds: Callable[[State], bool], seconds: float = START_SECONDS) -> State:
        """Waits until the state satisfies `holds`."""
        last: list[State] = []

        def check() -> bool:
            with contextlib.suppress(ClientError):
                last[:] = [self.client.state(timeout=5)]
                return holds(last[0])
            return False

        wait_until(check, seconds, f"{self.settings.role}; log:\n{self.tail()}")
        return last[0]

    def tail(self) -> str:
        """The end of its log."""
        return self.log.read_text()[-3000:]


def wait_until(holds: Callable[[], bool], seconds: float, what: str) -> None:
    """Polls until `holds`, or fails after `seconds`."""
    deadline = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {seconds} s: {what}")
        time.sleep(0.01)


def free_port() -> int:
    """A port that nobody listened on a moment ago."""
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return int(s.getsockname()[1])


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


def pair_with(target: Worker, *drafts: Worker, version: int, speculate: bool = True) -> None:
    """Pushes the policy that links a target to drafts."""
    policy = PolicySettings(
        version=version,
        speculate=speculate,
        drafts=tuple(draft.address for draft in drafts),
        off_below_percent=0,  # a test must not depend on how busy the machine is
    )
    target.client.set_policy(policy)


def alive(pid: int) -> bool:
    """Whether a process still runs (a zombie does not)."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False
