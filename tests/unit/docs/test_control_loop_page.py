"""The page on the control loop says what the last simulated day said."""

import json
from pathlib import Path

import pytest

from outrider.operator.control import phases

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "concepts" / "control-loop.md").read_text(encoding="utf-8")
RESULTS = json.loads((ROOT / "bench" / "results" / "control_loop.json").read_text())["results"]
SIDES = ("always_on", "always_off", "controlled")


@pytest.mark.parametrize(
    ("row", "name", "digits"),
    [
        ("mean seconds of a request", "mean_latency_seconds", 1),
        ("95th percentile", "p95_latency_seconds", 1),
        ("hours of draft pods", "draft_hours", 1),
        ("switches", "switches", 0),
    ],
)
def test_its_table_is_the_results(row: str, name: str, digits: int) -> None:
    values = " | ".join(f"{RESULTS[side][name]:.{digits}f}" for side in SIDES)
    assert f"| {row} | {values} |" in PAGE


def test_its_events_happened() -> None:
    told = [line for line in PAGE.splitlines() if line[:2].isdigit() and line[2] == ":"]
    assert len(told) == 8
    assert [line for line in told if line not in RESULTS["events"]] == []


def test_its_overload_is_the_results() -> None:
    first, alone = (RESULTS["overload"][side] for side in ("gain_first", "queue_alone"))
    assert f"a request takes {first['mean_latency_seconds']:.1f} seconds in the mean" in PAGE
    assert f"a request takes {alone['mean_latency_seconds']:.0f} seconds." in PAGE


def test_its_diagram_is_that_of_the_code() -> None:
    drawing = str(phases.__doc__).split("```")[1]
    assert drawing in PAGE
