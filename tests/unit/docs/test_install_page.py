"""The page on installing says what was measured last."""

import json
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "how-to" / "install.md").read_text(encoding="utf-8")
RESULTS = json.loads((ROOT / "bench" / "results" / "install.json").read_text())["results"]
ROWS = {
    "run": "what `make demo` installs: `cli`, `worker`, `demo`",
    "worker": "`worker`, as in the image with `DEVICE=cpu`",
    "worker-torch": "`worker-torch`, as with `DEVICE=cuda`",
    "operator": "`operator`, as in its image",
    "cli": "`cli`",
}


@pytest.mark.parametrize("name", ROWS)
def test_its_sizes_are_the_results(name: str) -> None:
    found = RESULTS[name]
    assert f"| {ROWS[name]} | {found['megabytes']:,.0f} | {found['packages']} |" in PAGE


def test_its_times_are_the_results() -> None:
    demo = RESULTS["demo"]
    for took in (demo["install"]["took"], demo["first"], demo["again"]):
        assert f" | {took['seconds']:.1f} | {took['processor_seconds']:.1f} |" in PAGE
