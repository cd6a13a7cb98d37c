"""The page on the operator at scale quotes the last measurement, and nothing else."""

import json
from typing import Any

import pytest

from bench import operator_page
from bench.operator_page import BEGIN, END, PAGE, figures, quoted
from bench.report import RESULTS

REPORT = RESULTS / "operator.json"


@pytest.fixture
def report() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(REPORT.read_text(encoding="utf-8"))
    return found


def test_the_page_quotes_the_last_measurement(report: dict[str, Any]) -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert quoted(page, report) == page, "run `python -m bench.operator --redraw`"


def test_a_pass_beyond_all_buckets_is_said_to_be_so(report: dict[str, Any]) -> None:
    del report["ratios"]["rest_pass_p99_seconds"]
    assert "s, more than 30 s |" in figures(report)


def test_only_the_part_between_the_markers_is_written(report: dict[str, Any]) -> None:
    page = quoted(f"before\n{BEGIN}\nold\n{END}\nafter\n", report)
    assert page.startswith(f"before\n{BEGIN}\n{report['results']['services']} services")
    assert page.endswith(f"|\n{END}\nafter\n")
    with pytest.raises(ValueError, match="lacks"):
        operator_page.quoted("no markers", report)
