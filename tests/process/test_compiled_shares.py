"""Kernels compiled beside the preparation: which shares are, and that no start ends with one."""

import asyncio
import contextlib
import os
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from outrider.cli.machine.run_dir import RunFolder
from outrider.cli.terminal.progress import Lines, StageReporter
from outrider.cli.workers.compilation import SIGNATURES, compile_kernels, marker, shares_of
from outrider.cli.workers.process import COMPILED, Command
from outrider.contract import processors
from outrider.contract.settings import Dtype, ModelSettings, Role, WorkerSettings

PAIR = WorkerSettings(
    role=Role.TARGET,
    name="tiny",
    model=ModelSettings(uri="file:///target"),
    colocated=ModelSettings(uri="file:///draft"),
)
COMPILER = """
import json, os, pathlib, signal, sys, time
here = pathlib.Path(__file__).parent
settings = json.loads(pathlib.Path(sys.argv[sys.argv.index("--settings") + 1]).read_text())
name = "pair" if settings["colocated"] else "target"
fresh = here / f".{name}"
fresh.write_text(str(os.getpid()))
fresh.rename(here / name)
if (here / "pair fails").exists():
    if name == "target":
        signal.pause()
    while not (here / "target").exists():
        time.sleep(0.01)
    print(json.dumps({"error": "no compiler"}))
"""
"""Leaves its process id in a file by the name of its share."""


class Compiler:
    """A command in place of the workers', whose processes leave a trace."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        script = folder / "compiler.py"
        script.write_text(COMPILER)
        self.command: Command = (sys.executable, str(script))

    @property
    def markers(self) -> list[Path]:
        return [marker(share, self.command) for share in shares_of([PAIR])]

    def fail(self) -> None:
        """Let the share of the pair fail once the target's is under way, which never ends."""
        (self._folder / "pair fails").touch()

    async def compile(
        self, workers: WorkerSettings = PAIR, progress: StageReporter | None = None
    ) -> None:
        runs = RunFolder(self._folder / "runs")
        await compile_kernels([workers], self.command, runs, progress or Lines())

    def process(self, share: str) -> int | None:
        """Return the id of the process that a share had, and forget it; None: it had none."""
        trace = self._folder / share
        if not trace.exists():
            return None
        found = int(trace.read_text())
        trace.unlink()
        return found


class Totals(Lines):
    """Keeps of how much each stage shown was a share; 0: of something unknown."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: set[int] = set()

    def stage(self, name: str, stage: str, done: int = 0, total: int = 0) -> None:
        self.seen.add(total)


@pytest.fixture
def compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Compiler:
    """On two processors, with a folder of its own for what is compiled."""
    monkeypatch.setattr(processors, "count", lambda: 2)
    monkeypatch.setenv(COMPILED, str(tmp_path / "compiled"))
    return Compiler(tmp_path)


def test_progress_is_a_share_where_nothing_was_ever_compiled(compiler: Compiler) -> None:
    first, second = Totals(), Totals()
    asyncio.run(compiler.compile(progress=first))
    compiler.markers[0].unlink()
    asyncio.run(compiler.compile(progress=second))
    assert (first.seen, second.seen) == ({SIGNATURES}, {0})


def test_a_share_that_was_compiled_is_not_compiled_again(compiler: Compiler) -> None:
    asyncio.run(compiler.compile())
    assert compiler.process("target")
    assert compiler.process("pair")
    assert all(done.exists() for done in compiler.markers)
    of_target, _ = compiler.markers
    of_target.unlink()
    asyncio.run(compiler.compile())
    assert compiler.process("target")
    assert compiler.process("pair") is None


@pytest.mark.parametrize(("dtype", "again"), [(Dtype.INT8, False), (Dtype.INT4, True)])
def test_what_auto_takes_is_compiled_when_it_is_named_the_next_time(
    compiler: Compiler, dtype: Dtype, again: bool
) -> None:
    asyncio.run(compiler.compile())
    assert compiler.process("target")
    named = replace(PAIR, model=replace(PAIR.model, dtype=dtype))
    asyncio.run(compiler.compile(named))
    assert (compiler.process("target") is not None) is again


def test_one_processor_compiles_nothing_beside_the_preparation(
    compiler: Compiler, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processors, "count", lambda: 1)
    asyncio.run(compiler.compile())
    assert compiler.process("target") is None
    assert compiler.process("pair") is None


def test_a_share_that_fails_ends_the_other_and_no_start(
    compiler: Compiler, capsys: pytest.CaptureFixture[str]
) -> None:
    compiler.fail()

    async def is_left() -> bool:
        await compiler.compile()
        process = compiler.process("target")
        assert process is not None
        with contextlib.suppress(ProcessLookupError):
            os.kill(process, 0)
            return True
        return False

    assert not asyncio.run(is_left())
    said = capsys.readouterr().err
    assert "Workers compile their kernels themselves: kernels-" in said
    assert "no compiler" in said
    assert not any(done.exists() for done in compiler.markers)


def test_a_cache_that_cannot_be_written_ends_no_start(
    compiler: Compiler,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv(COMPILED, str(tmp_path / "file" / "compiled"))
    asyncio.run(compiler.compile())
    said = capsys.readouterr().err
    assert "Workers compile their kernels themselves: [Errno" in said
