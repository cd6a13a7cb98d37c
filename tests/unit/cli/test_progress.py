"""What a run says on stderr."""

import re

import pytest

from outrider.cli.progress import Bars, Lines, Reporter


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
