"""Stages in `outrider top`: figures between two looks, their lines, and what is not up."""

import dataclasses
from datetime import datetime

from rich.console import Console

from outrider.cli.top.frame import as_json, frame
from outrider.cli.top.history import History
from outrider.cli.top.poll import Look
from outrider.cli.top.stages import stage_figures, under_way
from outrider.client import StageGroup, StageView
from tests.unit.cli.top.test_top import state

NOW = datetime(2026, 1, 2, 3, 4, 5)
EARLY = StageView(
    index=0, first_layer=0, layers=14, dtype="fp32", kv_blocks=9, segments=10, rows=40,
    busy_seconds=1.0, queue_seconds=0.5, row_seconds=6.0, link_seconds=0.1,
)  # fmt: skip
LATE = dataclasses.replace(
    EARLY, segments=110, rows=540, busy_seconds=2.5, queue_seconds=0.9, row_seconds=16.0,
    link_seconds=0.2,
)  # fmt: skip
GROUP = StageGroup(
    up=True, detail="", losses=0, link="grpc", segments_in_flight=3, rows_in_flight=9,
    prompt_rows=10, committed_rows=50, pruned_rows=40,
)  # fmt: skip


def look(at: float, view: StageView, life: int = 1, **group: object) -> Look:
    other = dataclasses.replace(view, index=1, first_layer=14, layers=16)
    stages = dataclasses.replace(GROUP, each=(view, other), **group)  # type: ignore[arg-type]
    known = dataclasses.replace(state(life=life), stages=stages)
    return Look("a:1", at, known)


def drawn(history: History) -> str:
    console = Console(width=100, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
    console.print(frame(history, NOW))
    console.file.close()
    return console.export_text()


def test_figures_are_of_what_a_stage_did_between_two_looks() -> None:
    found = stage_figures(look(10.0, EARLY), look(12.0, LATE))
    assert found is not None
    first = found[0]
    assert (first.busy, first.rows_in_flight, first.rows_per_segment) == (0.75, 5.0, 5.0)
    assert first.compute_seconds == 0.015
    assert first.queue_seconds == 0.4 / 100
    assert first.link_seconds == 0.1 / 100
    assert (first.link, first.link_state) == ("grpc", "up")
    assert [(one.first_layer, one.layers) for one in found] == [(0, 14), (14, 16)]


def test_a_stage_that_did_nothing_has_no_means() -> None:
    found = stage_figures(look(10.0, EARLY), look(12.0, EARLY))
    assert found is not None
    assert found[0].busy == found[0].rows_in_flight == 0
    assert found[0].rows_per_segment is found[0].queue_seconds is None


def test_a_target_that_restarted_or_has_no_stages_has_no_figures() -> None:
    plain = Look("a:1", 1.0, state())
    assert stage_figures(plain, Look("a:1", 2.0, state())) is None
    assert stage_figures(look(1.0, EARLY), look(2.0, LATE, life=2)) is None
    assert stage_figures(None, look(2.0, LATE)) is None
    assert stage_figures(look(1.0, EARLY), Look("a:1", 2.0, None, "gone")) is None


def test_stages_that_were_not_there_before_count_from_nothing() -> None:
    found = stage_figures(Look("a:1", 10.0, state()), look(12.0, EARLY))
    assert found is not None
    assert found[0].busy == 0.5


def test_a_frame_has_a_line_for_each_stage() -> None:
    history = History()
    history.add([look(10.0, EARLY)])
    history.add([look(12.0, LATE)])
    lines = [" ".join(line.split()) for line in drawn(history).splitlines()]
    assert "a:1 0 up 0-13 75% 5.0 5.0 15.0 ms 4.0 ms grpc 1.0 ms" in lines
    assert "a:1 1 up 14-29 75% 5.0 5.0 15.0 ms 4.0 ms grpc 1.0 ms" in lines
    assert f"a:1 has {under_way(GROUP)}" in lines
    assert under_way(GROUP).startswith("3 segments with 9 rows ")
    assert "40% " in under_way(GROUP)


def test_a_frame_says_which_stage_is_missing() -> None:
    history = History()
    history.add([look(10.0, EARLY)])
    history.add([look(12.0, LATE, up=False, detail="stage 1 is gone")])
    text = drawn(history)
    assert "a:1 has not all of its stages: stage 1 is gone" in text
    assert "a:1 0 down" in " ".join(text.split())


def test_the_json_has_the_same_figures() -> None:
    history = History()
    history.add([look(10.0, EARLY)])
    history.add([look(12.0, LATE)])
    shown = as_json(history, NOW)["workers"][0]
    assert [stage["busy"] for stage in shown["stages"]] == [0.75, 0.75]
    assert shown["state"]["stages"]["each"][1]["layers"] == 16
