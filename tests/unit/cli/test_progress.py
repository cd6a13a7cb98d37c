"""What a run says on stderr."""

import asyncio
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from outrider.cli.terminal import progress
from outrider.cli.terminal.progress import Bars, Lines, StageReporter
from outrider.cli.terminal.stopwatch import Stopwatch


@pytest.mark.parametrize("reporter", [Lines(), Bars()])
def test_a_note_is_one_line_with_the_time_however_narrow_the_screen(
    reporter: StageReporter, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    text = "a-service-of-some-name-draft-0 was killed by signal 9; starting it again in 0.2 s"
    reporter.note(text)
    assert re.fullmatch(rf"\d\d:\d\d:\d\d {re.escape(text)}\n", capsys.readouterr().err)


def test_lines_show_each_stage_once(capsys: pytest.CaptureFixture[str]) -> None:
    lines = Lines()
    for done in range(3):
        lines.stage("target-0", "loading", done, 3)
    lines.stage("target-0", "linking")
    assert capsys.readouterr().err == "target-0: loading\ntarget-0: linking\n"


class Call:
    """A call that is to come."""

    def __init__(self, at: float, call: Callable[[], None]) -> None:
        self.at, self.call, self.cancelled = at, call, False

    def cancel(self) -> None:
        self.cancelled = True


class Clock:
    """A clock that is set, and calls that come when it is."""

    def __init__(self) -> None:
        self.now = 0.0
        self.calls: list[Call] = []

    def later(self, seconds: float, call: Callable[[], None]) -> Call:
        self.calls.append(Call(self.now + seconds, call))
        return self.calls[-1]

    def wait(self, seconds: float) -> None:
        """Make the calls of the next seconds."""
        until = self.now + seconds
        while due := [one for one in self.calls if one.at <= until and not one.cancelled]:
            first = min(due, key=lambda one: one.at)
            self.calls.remove(first)
            self.now = first.at
            first.call()
        self.now = until


def test_lines_repeat_any_stage_that_takes_long(capsys: pytest.CaptureFixture[str]) -> None:
    clock = Clock()
    lines = Lines(clock=lambda: clock.now, later=clock.later)
    lines.stage("kernels", "compiling", 0, 2)
    lines.stage("target", "download", 0, 200_000_000)
    clock.wait(29)
    lines.stage("target", "download", 50_000_000, 200_000_000)
    clock.wait(32)
    lines.finish("kernels")
    lines.stage("target", "loading")
    clock.wait(40)
    lines.finish("target")
    clock.wait(100)
    lines.stage("kernels", "compiling")
    lines.clear()
    clock.wait(100)
    assert capsys.readouterr().err.splitlines() == [
        "kernels: compiling",
        "target: download",
        "kernels: compiling (30 s so far)",
        "target: download (30 s so far, 25 %, 50.0 MB of 200.0 MB, 1.7 MB/s, 1 min left)",
        "kernels: compiling (60 s so far)",
        "target: download (60 s so far, 25 %, 50.0 MB of 200.0 MB, 1.7 MB/s, 1 min left)",
        "target: loading",
        "target: loading (30 s so far)",
        "kernels: compiling",
    ]


def test_no_line_is_repeated_once_all_is_started(capsys: pytest.CaptureFixture[str]) -> None:
    clock = Clock()
    lines = Lines(clock=lambda: clock.now, later=clock.later)
    lines.stage("target", "linking")
    lines.started()
    clock.wait(100)
    assert capsys.readouterr().err == "target: linking\n"


def test_lines_are_repeated_by_the_event_loop(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "REPEATED_SECONDS", 0.0)
    lines = Lines(clock=lambda: 0.0)

    async def load() -> None:
        lines.stage("target", "loading")
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        lines.finish("target")

    asyncio.run(load())
    first, *more = capsys.readouterr().err.splitlines()
    assert first == "target: loading"
    assert set(more) == {"target: loading (0 s so far)"}


@pytest.mark.parametrize("kind", [Lines, Bars])
def test_a_stage_says_how_long_it_took_last_time(
    kind: type[Lines | Bars],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")  # else bars show nothing that moves
    seconds = iter([0.0, 7.4, 7.4, 7.9, 100.0, 101.0])

    def reporter() -> Lines | Bars:
        return kind(Stopwatch("smollm2", tmp_path, lambda: next(seconds)))

    first = reporter()
    first.stage("target", "loading")
    first.stage("target", "linking")
    first.started()
    assert "last time" not in capsys.readouterr().err
    second = reporter()
    second.stage("target", "loading")
    second.clear()
    assert "7 s last time" in capsys.readouterr().err
