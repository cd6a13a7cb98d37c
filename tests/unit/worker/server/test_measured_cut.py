"""The process that measures a cut: its answer, its end."""

import asyncio
import os
import sys
from pathlib import Path

import pytest

from outrider.contract.settings import ModelSettings, PipelineSettings, Role, WorkerSettings
from outrider.worker.errors import ModelError, Stopping
from outrider.worker.server import measured_cut
from outrider.worker.server.measured_cut import with_cut

SETTINGS = WorkerSettings(
    role=Role.TARGET,
    name="tiny",
    model=ModelSettings(uri="file:///tiny"),
    pipeline=PipelineSettings(stages=2),
)
SECONDS = 60.0
"""Far more than anything here takes."""
LIVES = """
import os, sys, time
{first}
open(sys.argv[2] + ".pid", "w").write(str(os.getpid()))
time.sleep(600)
"""
ENDS = """
import sys
from outrider.worker.host.process import exit_with_parent
exit_with_parent(int(sys.argv[4]))
"""


def run(
    monkeypatch: pytest.MonkeyPatch, folder: Path, code: str, stop: asyncio.Event | None = None
) -> WorkerSettings:
    monkeypatch.setattr(measured_cut, "COMMAND", (sys.executable, "-c", code))
    return asyncio.run(with_cut(SETTINGS, folder, stop or asyncio.Event()))


async def started(folder: Path) -> int:
    """The process id of what measures, once it runs."""
    file = folder / "cut.json.pid"
    async with asyncio.timeout(SECONDS):
        while not (file.exists() and file.read_text()):
            await asyncio.sleep(0.01)
    return int(file.read_text())


def test_what_is_measured_is_taken(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    cut = run(monkeypatch, tmp_path, """print('{"cut": [3, 2], "words": "because"}')""")
    assert cut.pipeline.cut == (3, 2)


@pytest.mark.parametrize("printed", ["", "oh", "[]", "{}", '{"cut": 3, "words": ""}'])
def test_what_is_no_cut_is_told(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, printed: str
) -> None:
    with pytest.raises(ModelError, match="the measured cut cannot be read"):
        run(monkeypatch, tmp_path, f"print({printed!r})")


def test_a_measurement_that_fails_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="the cut over 2 stages cannot be measured"):
        run(monkeypatch, tmp_path, "raise SystemExit(1)")


def test_a_worker_that_is_to_stop_ends_the_measurement(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    async def stopped() -> int:
        stop = asyncio.Event()
        cutting = asyncio.create_task(with_cut(SETTINGS, tmp_path, stop))
        pid = await started(tmp_path)
        stop.set()
        with pytest.raises(Stopping):
            await asyncio.wait_for(cutting, SECONDS)
        return pid

    monkeypatch.setattr(measured_cut, "COMMAND", (sys.executable, "-c", LIVES.format(first="")))
    pid = asyncio.run(stopped())
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_a_measurement_ends_with_its_worker(tmp_path: Path) -> None:
    """The worker is killed, so that it can end nothing itself."""
    code = f"""
import asyncio, sys, pathlib
from outrider.worker.server import measured_cut
from tests.unit.worker.server.test_measured_cut import ENDS, LIVES, SETTINGS
measured_cut.COMMAND = (sys.executable, "-c", LIVES.format(first=ENDS))
asyncio.run(measured_cut.with_cut(SETTINGS, pathlib.Path({str(tmp_path)!r}), asyncio.Event()))
"""

    async def killed() -> int:
        worker = await asyncio.create_subprocess_exec(
            sys.executable, "-c", code, cwd=Path(__file__).parents[4]
        )
        pid = await started(tmp_path)
        worker.kill()
        await worker.wait()
        return pid

    pid = asyncio.run(killed())
    asyncio.run(gone(pid))


async def gone(pid: int) -> None:
    """Waits until a process of nobody here has ended."""
    stat = Path(f"/proc/{pid}/stat")
    async with asyncio.timeout(SECONDS):
        while stat.exists() and stat.read_text().rpartition(")")[2].split()[0] != "Z":
            await asyncio.sleep(0.01)
