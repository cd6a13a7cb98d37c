"""`--timeline`: files that cannot be written are refused before the run, spans become lanes."""

import json
from pathlib import Path

import pytest

from outrider.cli.failures import BadInput, Failure
from outrider.cli.timeline import TimelineFile, drawn, write
from outrider.client import TimelineSpan


def span(lane: str, number: int, began: float, rows: int = 4) -> TimelineSpan:
    return TimelineSpan(
        lane=lane,
        number=number,
        came=began - 0.5,
        began=began,
        ended=began + 1.0,
        rows=rows,
        prompt_rows=0,
        committed_rows=1,
        pruned_rows=2,
    )


LANES = {
    "draft": [span("draft", 0, 10.0)],
    "stage 0": [span("stage 0", 6, 11.0), span("stage 0", 7, 12.0)],
    "stage 1": [span("stage 1", 6, 12.5)],
}


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("lanes.gif", r"allowed: a file that ends in \.json, \.png, \.svg or \.pdf"),
        ("lanes", "allowed: a file that ends in"),
        ("missing/lanes.svg", "there is no folder .*missing"),
        ("folder.json", "is a folder"),
    ],
)
def test_what_cannot_be_written_is_refused_before_the_run(
    tmp_path: Path, name: str, words: str
) -> None:
    (tmp_path / "folder.json").mkdir()
    with pytest.raises(BadInput, match=f"--timeline .*{words}"):
        TimelineFile.checked(tmp_path / name, 1.0, ())


def test_a_picture_shows_the_last_seconds_of_work() -> None:
    shown = [(one.lane, one.segment, one.begin) for one in drawn(LANES, 1.2)]
    assert shown == [("stage 0", 7, 12.0), ("stage 1", 6, 12.5)]
    assert len(drawn(LANES, 60.0)) == 4


def test_lanes_lie_in_the_order_of_their_workers() -> None:
    found = drawn(LANES, 60.0)
    assert {one.stage: one.lane for one in found} == dict(enumerate(LANES))
    assert {(one.rows, one.committed_rows, one.pruned_rows) for one in found} == {(4, 1, 2)}


def test_json_has_every_span(tmp_path: Path) -> None:
    path = tmp_path / "lanes.json"
    write(LANES, path, "a title", seconds=0.001)
    found = json.loads(path.read_text())
    assert found["title"] == "a title"
    assert [(one["lane"], one["number"]) for one in found["spans"]] == [
        ("draft", 0),
        ("stage 0", 6),
        ("stage 0", 7),
        ("stage 1", 6),
    ]
    assert found["spans"][1] | {"came": 10.5, "began": 11.0, "ended": 12.0} == found["spans"][1]


@pytest.mark.parametrize("name", ["lanes.svg", "lanes.json"])
def test_a_file_that_cannot_be_written_after_all_is_named(tmp_path: Path, name: str) -> None:
    with pytest.raises(Failure, match=f"--timeline .*{name}: No such file"):
        write(LANES, tmp_path / "gone" / name, "title", 1.0)


def test_a_run_without_any_pass_has_no_timeline(tmp_path: Path) -> None:
    with pytest.raises(Failure, match="nothing was computed"):
        write({}, tmp_path / "lanes.svg", "title", 1.0)


def test_a_title_names_the_command(tmp_path: Path) -> None:
    made = TimelineFile.checked(tmp_path / "x.json", 1.0, ("run", "--prompt", "Tell a story."))
    assert made.command == "outrider run --prompt 'Tell a story.'"
    long = TimelineFile.checked(tmp_path / "x.json", 1.0, ("run", "many words " * 100))
    assert len(long.command) <= 170
