"""Benchmarks write comparable reports, over prompts that are varied enough to mean something."""

import json
from collections import Counter
from pathlib import Path

import pytest

from bench.record.report import machine, median_and_range, prompts, write_report
from bench.sides.services import turns


def test_each_side_is_the_first_as_often_as_others() -> None:
    names = ["a", "b", "c"]
    orders = [turns(names, number) for number in range(6)]
    assert [order[0] for order in orders] == ["a", "b", "c"] * 2
    assert all(sorted(order) == names for order in orders)


def test_a_spread_is_above_another_only_when_ranges_do_not_touch() -> None:
    low, high = median_and_range([1.0, 3.0, 2.0]), median_and_range([3.5, 4.0])
    assert (low.median, low.low, low.high, low.n) == (2.0, 1.0, 3.0, 3)
    assert high.above(low)
    assert not low.above(high)
    assert not median_and_range([2.9, 9.0]).above(low)


def test_a_report_holds_what_is_needed_to_repeat_it(tmp_path: Path) -> None:
    path = tmp_path / "new" / "report.json"
    spread = {"plain": median_and_range([1.0])}
    write_report(path, "c", spread, {"a_vs_b": 1.23456}, (0.1234, 0, 0))
    report = json.loads(path.read_text())
    assert report["results"] == {"plain": {"median": 1.0, "low": 1.0, "high": 1.0, "n": 1}}
    assert (report["command"], report["ratios"]) == ("c", {"a_vs_b": 1.2346})
    assert report["load_average"] == [0.12, 0, 0]
    assert report["machine"].keys() == machine().keys()
    assert report["date"].endswith("+00:00")


def test_a_ratio_that_is_no_number_is_not_written(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        write_report(tmp_path / "r", "c", {}, {"a": float("nan")}, ())


def test_the_machine_is_described() -> None:
    facts = machine()
    assert facts["cpu"]
    assert facts["cores"] >= 1
    assert facts["memory_gib"] > 0
    assert facts["packages"]["numpy"]


def test_the_chat_prompts_are_many_and_varied() -> None:
    chat = prompts()
    assert len(chat) >= 24
    assert len({p.id for p in chat}) == len({p.text for p in chat}) == len(chat)
    assert max(Counter(p.kind for p in chat).values()) <= len(chat) // 4
