"""The lives of a worker: how long a crashed one waits, and what its next life may lack."""

import asyncio
import contextlib
import errno
import shutil
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from outrider.cli.failures import WorkerFailed
from outrider.cli.machine.ports import WantedPorts
from outrider.cli.machine.run_dir import RunFolder
from outrider.cli.terminal.progress import StageReporter
from outrider.cli.workers.health import Place, Probing
from outrider.cli.workers.supervisor import Backoff, Launch, Supervisor
from outrider.contract.settings import ModelSettings, Role, WorkerSettings
from outrider.operator.plan import WorkerPlan

WORKER = """
import json, os, signal, sys
if "stops" in os.listdir(FOLDER):
    os.unlink(f"{FOLDER}/stops")
    os.kill(os.getpid(), signal.SIGSTOP)
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

settings = Path(sys.argv[sys.argv.index("--settings") + 1])
STATUS = health_pb2.HealthCheckResponse

class Health(health_pb2_grpc.HealthServicer):
    silent = False

    def Check(self, request, context):
        there = os.listdir(FOLDER)
        if not request.service:
            return STATUS(status=STATUS.NOT_SERVING if "loads" in there else STATUS.SERVING)
        if self.silent:
            context.abort(grpc.StatusCode.UNAVAILABLE, "as one that does not listen")
        self.silent = "loads" in there
        return STATUS(status=STATUS.NOT_SERVING if "hangs" in there else STATUS.SERVING)

server = grpc.server(ThreadPoolExecutor(2), options=(("grpc.so_reuseport", 0),))
health_pb2_grpc.add_HealthServicer_to_server(Health(), server)
server.add_insecure_port(json.loads(settings.read_text())["listen"])
server.start()
os.read(int(sys.argv[sys.argv.index("--parent-fd") + 1]), 1)
"""
"""A worker that serves nothing but its health, until its parent ends. Files tell it to: `stops`
once, as it begins; `hangs`; `loads`, and fall silent after it has said once that it lives."""


def test_it_doubles_up_to_its_ceiling() -> None:
    backoff = Backoff()
    delays = [backoff.after(lived=0.0) for _ in range(8)]
    assert delays == [0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 10.0, 10.0]


def test_a_healthy_life_begins_anew() -> None:
    backoff = Backoff()
    for _ in range(5):
        backoff.after(lived=1.0)
    assert [backoff.after(lived=30.0), backoff.after(lived=29.9)] == [0.2, 0.4]


class Notes(StageReporter):
    """Progress that is kept."""

    def __init__(self) -> None:
        self.notes: list[str] = []

    def stage(self, name: str, stage: str, done: int = 0, total: int = 0) -> None:
        pass

    def finish(self, name: str) -> None:
        pass

    def note(self, text: str) -> None:
        self.notes.append(text)

    def clear(self) -> None:
        pass

    def started(self) -> None:
        pass


class Lives:
    """A supervisor of workers that serve nothing but their health."""

    def __init__(self, folder: Path) -> None:
        self.hangs, self.loads, self.stops = (folder / name for name in ("hangs", "loads", "stops"))
        self.progress = Notes()
        self.run_folder = RunFolder(folder / "runs")
        script = f"FOLDER = {str(folder)!r}\n{WORKER}"
        settings = WorkerSettings(
            role=Role.DRAFT, name="tiny", model=ModelSettings(uri="file:///none")
        )
        launch = Launch(
            (sys.executable, "-c", script), self.run_folder, probing=Probing(0.05, 60.0, 2)
        )
        self.supervisor = Supervisor(
            WorkerPlan("draft-0", settings), launch, WantedPorts(), self.progress, lambda: None
        )
        self.supervisor._backoff = Backoff(first=0.01, ceiling=0.05)

    async def until_ended(self) -> None:
        """Wait until it has been ended because it hung."""
        while not any("does not go on" in note for note in self.progress.notes):
            await asyncio.sleep(0.01)

    async def until_lives(self, count: int) -> None:
        """Wait until it serves after so many restarts."""
        supervisor = self.supervisor
        while not (supervisor.serving and supervisor.restarts >= count):
            await asyncio.sleep(0.01)

    @contextlib.asynccontextmanager
    async def kept(self) -> AsyncIterator[None]:
        """From its first life on it is kept; it ends with the block."""
        async with asyncio.timeout(120):
            await self.supervisor.start()
            keeping = asyncio.create_task(self.supervisor.keep())
            try:
                yield
                assert not keeping.done()
            finally:
                keeping.cancel()
                await asyncio.gather(keeping, return_exceptions=True)
                await self.supervisor.stop(5.0)

    def kill(self) -> None:
        process = self.supervisor._process
        assert process is not None
        process.kill()


def test_a_worker_whose_folder_is_gone_lives_again(tmp_path: Path) -> None:
    async def main() -> None:
        lives = Lives(tmp_path)
        async with lives.kept():
            shutil.rmtree(lives.run_folder.path.parent)
            lives.kill()
            await lives.until_lives(1)
            assert (lives.run_folder.path / "draft-0.json").exists()
            assert lives.run_folder.links.is_dir()

    asyncio.run(main())


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EMFILE, errno.ENOMEM])
def test_a_life_for_which_the_system_has_nothing_left_is_tried_again(
    tmp_path: Path, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        lives = Lives(tmp_path)
        write, left = lives.run_folder.write, [2]

        def fails(worker: str, settings: WorkerSettings) -> Path:
            if left[0]:
                left[0] -= 1
                raise OSError(number, "there is none", "FILE")
            return write(worker, settings)

        async with lives.kept():
            monkeypatch.setattr(lives.run_folder, "write", fails)
            lives.kill()
            await lives.until_lives(3)
        said = f"cannot be started ([Errno {number}] there is none: 'FILE')"
        assert sum(said in note for note in lives.progress.notes) == 2

    asyncio.run(main())


def test_a_worker_whose_engine_hangs_is_ended_and_lives_again(tmp_path: Path) -> None:
    async def main() -> None:
        lives = Lives(tmp_path)
        async with lives.kept():
            lives.hangs.touch()
            await lives.until_ended()
            lives.hangs.unlink()
            await lives.until_lives(1)

    asyncio.run(main())


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux shows who is stopped")
def test_a_worker_that_is_stopped_while_it_is_started_again_is_ended_and_lives_again(
    tmp_path: Path,
) -> None:
    async def main() -> None:
        lives = Lives(tmp_path)
        async with lives.kept():
            lives.stops.touch()
            lives.kill()
            await lives.until_ended()
            await lives.until_lives(2)

    asyncio.run(main())


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux shows who is stopped")
def test_a_worker_that_is_stopped_in_its_first_start_fails_it(tmp_path: Path) -> None:
    async def main() -> None:
        lives = Lives(tmp_path)
        lives.stops.touch()
        async with asyncio.timeout(120):
            with pytest.raises(WorkerFailed) as failed:
                await lives.supervisor.start()
        assert failed.value.exit_status == -signal.SIGKILL
        await lives.until_ended()

    asyncio.run(main())


def test_a_worker_that_falls_silent_while_it_loads_is_ended_and_lives_again(tmp_path: Path) -> None:
    async def main() -> None:
        lives = Lives(tmp_path)
        async with lives.kept():
            lives.loads.touch()
            lives.kill()
            await lives.until_ended()
            lives.loads.unlink()
            await lives.until_lives(1)

    asyncio.run(main())


def test_a_question_that_cannot_be_asked_is_told_once_and_the_watch_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        lives = Lives(tmp_path)
        place, left = lives.supervisor._control_place, [3]

        def fails() -> Place:
            if left[0]:
                left[0] -= 1
                raise OSError(errno.EMFILE, "no descriptor left")
            return place()

        async with lives.kept():
            monkeypatch.setattr(lives.supervisor, "_control_place", fails)
            lives.hangs.touch()
            await lives.until_ended()
            lives.hangs.unlink()
            await lives.until_lives(1)
        assert sum("cannot be asked" in note for note in lives.progress.notes) == 1

    asyncio.run(main())
