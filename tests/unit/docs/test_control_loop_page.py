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
    own, off = (RESULTS["overload"][side] for side in ("controlled", "always_off"))
    assert f"a request takes {own['mean_latency_seconds']:.1f} seconds in the mean" in PAGE
    assert f"without drafts {off['mean_latency_seconds']:.0f} seconds." in PAGE


def test_its_plants_are_the_results() -> None:
    rows = [line for line in PAGE.splitlines() if line.startswith("|") and line.endswith(" % |")]
    names = ("draft_hours", "policies", "probes", "percent_on")
    for row, found in zip(rows, RESULTS["plants"].values(), strict=True):
        hours, policies, probes, on = (found[name] for name in names)
        figures = f"| {hours:.1f} | {policies} | {probes} | {on:.0f} % | "
        assert figures in row
        lost = row.removesuffix(" % |").rsplit("| ", 1)[1]
        assert float(lost) == pytest.approx(found["percent_lost"], abs=0.051)


def test_its_diagram_is_that_of_the_code() -> None:
    drawing = str(phases.__doc__).split("```")[1]
    assert drawing in PAGE
