"""Lanes of stages: busy shares, what a box shows, and pictures in each format."""

import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

from outrider.cli.lanes import Span, busy_share, draw, extent, fates_known, shares

SPANS = [
    Span(stage=0, segment=0, begin=1.0, end=2.0, rows=3, sequence=5),
    Span(stage=1, segment=0, begin=2.0, end=4.0, rows=3, sequence=5),
    Span(stage=0, segment=1, begin=4.0, end=5.0, rows=1, sequence=6),
]
SETTLED = Span(0, 0, 1.0, 2.0, rows=8, committed_rows=2, prompt_rows=4, pruned_rows=1)


def texts_of(path: Path) -> set[str]:
    root = ElementTree.parse(path).getroot()
    return {"".join(one.itertext()).strip() for one in root.iter() if one.tag.endswith("text")}


def test_a_stage_is_busy_while_it_computes() -> None:
    assert extent(SPANS) == 4.0
    assert busy_share(SPANS, 0) == 0.5
    assert busy_share(SPANS, 1) == 0.5


def test_a_box_is_cut_by_what_became_of_its_rows() -> None:
    parts = [(fate.label, bottom, height) for fate, bottom, height in shares(SETTLED)]
    assert parts == [
        ("committed", 0.0, 0.25),
        ("prefill", 0.25, 0.5),
        ("drafted, or not decided yet", 0.75, 0.125),
        ("pruned", 0.875, 0.125),
    ]


def test_a_box_never_leaves_its_lane() -> None:
    counted_twice = SETTLED._replace(rows=3)
    _, bottom, height = shares(counted_twice)[-1]
    assert bottom + height == 1.0


def test_without_fates_colours_tell_segments_apart() -> None:
    assert not fates_known(SPANS)
    assert fates_known([*SPANS, SETTLED])


@pytest.mark.parametrize("spans", [SPANS, [*SPANS, SETTLED._replace(lane="draft", stage=2)]])
def test_a_picture_names_lanes_and_shares(tmp_path: Path, spans: list[Span]) -> None:
    draw(spans, "a < b & c", tmp_path / "lanes.svg")
    texts = texts_of(tmp_path / "lanes.svg")
    assert {"a < b & c", "stage 0", "stage 1", "milliseconds"} <= texts
    assert ("draft" in texts) == ("committed" in texts) == fates_known(spans)
    assert "busy 50%" in texts


@pytest.mark.parametrize("words", ["--prompt 'costs $5_ or $6'", "--prompt '$5_$'"])
def test_titles_and_lanes_are_no_formulas(tmp_path: Path, words: str) -> None:
    draw([SPANS[0]._replace(lane=f"draft of {words}")], words, tmp_path / "lanes.svg")
    assert {words, f"draft of {words}"} <= texts_of(tmp_path / "lanes.svg")


@pytest.mark.parametrize(("suffix", "first"), [(".png", b"\x89PNG"), (".pdf", b"%PDF")])
def test_the_suffix_names_the_format(tmp_path: Path, suffix: str, first: bytes) -> None:
    path = tmp_path / f"lanes{suffix}"
    draw(SPANS, "lanes", path)
    assert path.read_bytes().startswith(first)


def test_nothing_cannot_be_drawn(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no spans"):
        draw([], "empty", tmp_path / "lanes.png")
