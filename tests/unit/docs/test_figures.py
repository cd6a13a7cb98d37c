"""Figures and pictures of the docs say what they were measured on, when, and by which command."""

import json
import re
from pathlib import Path

import pytest
from PIL import Image

from bench import pictures, provenance
from bench.report import RESULTS

ROOT = Path(__file__).parents[3]
PAGES = [
    ROOT / "README.md",
    *(page for page in provenance.pages() if page.parent.name != "decisions"),
]
"""Pages that say what holds now; decisions quote the measurements of their day."""
NAMED = re.compile(r"bench/results/(\w+)\.(?:png|json)")
OTHERWISE = {
    "roofline": "Nothing here is measured",  # arithmetic
    "operator": "load average when it began",  # bench.operator_page
    "speculation": "`make bench` repeats it",  # bench.quote
    "proportion": "`make sync`, then `.venv/bin/python -m bench.proportion`",
    "cpu_peers": "`python -m bench.cpu_peers`",
    "cpu_peers_2_threads": "`python -m bench.cpu_peers`",
}
"""What says it in place of a line of `bench.provenance`, in README or on a page of its own."""


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_lines_on_measurements_are_what_the_reports_say(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert provenance.quoted(text) == text, "run `python -m bench.provenance`"


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_a_page_that_names_a_report_says_where_it_comes_from(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    for name in set(NAMED.findall(text)):
        if not (RESULTS / f"{name}.json").exists():
            continue  # a benchmark that writes it is named, no figure of it
        assert f"<!-- measured: {name} -->" in text or OTHERWISE.get(name, "\0") in text, name


PLOTS = sorted(path for path in RESULTS.glob("*.png") if path.stem != "roofline")
"""Of measurements and simulations; the roofline is arithmetic, and has no report."""


@pytest.mark.parametrize("path", PLOTS, ids=lambda p: p.stem)
def test_a_plot_has_its_configuration_in_its_title(path: Path) -> None:
    assert path.stem in pictures.CAPTIONS
    report = json.loads(path.with_suffix(".json").read_text(encoding="utf-8"))
    with Image.open(path) as image:
        assert image.text[pictures.TITLE] == pictures.title(path.stem, report), (
            "run `python -m bench.pictures`"
        )


def test_a_title_is_put_once(tmp_path: Path) -> None:
    report = {"date": "2026-01-02T03:04:05+00:00", "machine": MACHINE}
    path = tmp_path / "prefix.json"
    path.write_text(json.dumps(report))
    Image.new("RGB", (640, 100), "blue").save(path.with_suffix(".png"))
    pictures.put_title(path)
    once = path.with_suffix(".png").read_bytes()
    pictures.put_title(path)
    assert path.with_suffix(".png").read_bytes() == once
    with Image.open(path.with_suffix(".png")) as image:
        assert image.height > 100
        assert image.getpixel((5, image.height - 100)) == (0, 0, 255)
        assert "A CPU, 2 cores, 4 GiB, Linux x86_64 (avx2), 2026-01-02" in image.text["Title"]


MACHINE = {"cpu": "A CPU", "cores": 2, "memory_gib": 4, "system": "Linux x86_64", "flags": ["avx2"]}
