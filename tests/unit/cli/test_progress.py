"""What a run says on stderr."""

import re
from pathlib import Path

import pytest

from outrider.cli.progress import Bars, Lines, Reporter
from outrider.cli.stopwatch import Stopwatch


@pytest.mark.parametrize("reporter", [Lines(), Bars()])
def test_a_note_is_one_line_with_the_time_however_narrow_the_screen(
    reporter: Reporter, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
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


def test_lines_repeat_a_stage_that_takes_long(capsys: pytest.CaptureFixture[str]) -> None:
    times = iter([0.0, 29.0, 31.0, 60.0, 62.0, 63.0, 64.0])
    lines = Lines(clock=lambda: next(times))
    for _ in range(5):
        lines.stage("kernels", "compiling")
    lines.finish("kernels")
    lines.stage("kernels", "compiling")
    assert capsys.readouterr().err.splitlines() == [
        "kernels: compiling",
        "kernels: compiling (31 s so far)",
        "kernels: compiling (62 s so far)",
        "kernels: compiling",
    ]


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
