"""Lanes of stages: spans there and back, boxes where they were, waiting seen as a share."""

import xml.etree.ElementTree as ElementTree

import pytest

from outrider.cli.lanes import LEFT, WIDTH, Span, busy_share, drawn, json_lines, spans_from

SPANS = [
    Span(stage=0, segment=0, begin=1.0, end=2.0, rows=3, sequence=5),
    Span(stage=1, segment=0, begin=2.0, end=4.0, rows=3, sequence=5),
    Span(stage=0, segment=1, begin=4.0, end=5.0, rows=1, sequence=6),
]
SVG = "{http://www.w3.org/2000/svg}"


def test_spans_are_the_same_after_a_file() -> None:
    assert list(spans_from(json_lines(SPANS).splitlines())) == SPANS


@pytest.mark.parametrize("line", ['{"stage": 0}', "no json", '{"stage": 0, "other": 1}'])
def test_a_line_that_is_no_span_is_named(line: str) -> None:
    with pytest.raises(ValueError, match="line 2 is no span"):
        list(spans_from([json_lines(SPANS[:1]), line]))


def test_a_stage_is_busy_while_it_computes() -> None:
    assert busy_share(SPANS, 0) == 0.5
    assert busy_share(SPANS, 1) == 0.5


def test_every_span_is_a_box_at_its_time() -> None:
    root = ElementTree.fromstring(drawn(SPANS, "a < b & c"))
    boxes = [one for one in root.iter(f"{SVG}rect") if one.find(f"{SVG}title") is not None]
    assert [float(one.get("x", "")) for one in boxes] == [
        LEFT,
        LEFT + WIDTH / 4,
        LEFT + 3 * WIDTH / 4,
    ]
    assert [float(one.get("width", "")) for one in boxes] == [WIDTH / 4, WIDTH / 2, WIDTH / 4]
    texts = [one.text for one in root.iter(f"{SVG}text")]
    assert "a < b & c" in texts
    assert "4000 ms" in texts


def test_nothing_cannot_be_drawn() -> None:
    with pytest.raises(ValueError, match="no spans"):
        drawn([], "empty")
