"""The table of processors keeps a row for each processor and instruction set."""

from typing import Any

from bench import processors


def report(plain: float, date: str = "2026-01-02T03:04:05+00:00") -> dict[str, Any]:
    """What `bench.speculation` writes, as far as a row needs it."""
    modes = {
        mode: {"same_text": 1, "sides": {"plain 2": {"tokens_per_second": {"median": plain}}}}
        for mode in ("greedy", "temperature 0.8")
    }
    return {
        "machine": {"cpu": "Some CPU", "flags": ["avx2", "avx512f"], "cores": 2},
        "date": date,
        "load_average": [0.5, 0.4, 0.3],
        "results": {"plain_side": "plain 2", "dtype": {"plain 2": "int8"}, "modes": modes},
        "ratios": {"Colocated_vs_plain": 1.25, "Separate_vs_plain": 0.94},
    }


def test_a_row_measured_again_replaces_its_own_and_no_other() -> None:
    rows = [processors.row(report(100), isa) for isa in ("avx2", "avx512")]
    again = processors.row(report(200, "2026-02-03T00:00:00+00:00"), "avx2")
    merged = processors.merged(rows, [again])
    assert [(one["isa"], one["plain"]) for one in merged] == [("avx2", 200), ("avx512", 100)]
