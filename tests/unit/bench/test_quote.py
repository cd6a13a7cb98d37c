"""Ratios that a page quotes: a difference is claimed only where ranges are apart."""

from typing import Any

from bench import quote

TEXT = f"before\n{quote.BEGIN}\nold\n{quote.END}\nafter\n"


def side(low: float, high: float) -> dict[str, Any]:
    return {"tokens_per_second": {"median": (low + high) / 2, "low": low, "high": high, "n": 5}}


def report(plain: tuple[float, float] = (9.0, 11.0)) -> dict[str, Any]:
    """Plain decoding has the range `plain` in the second mode."""
    others = {"Colocated": (14.0, 16.0), "Separate": (18.0, 22.0)}
    modes = {
        mode: {"sides": {name: side(*ranges) for name, ranges in sides.items()}}
        for mode, sides in {
            "greedy": {"plain 1": (9.0, 11.0), **others},
            "temperature 0.8": {"plain 1": plain, **others},
        }.items()
    }
    return {
        "machine": {
            "cpu": "Some CPU",
            "flags": ["avx2", "avx_vnni"],
            "cores": 2,
            "memory_gib": 23.5,
            "system": "Linux x86_64",
        },
        "date": "2026-01-02T03:04:05+00:00",
        "results": {"plain_side": "plain 1", "modes": modes},
        "ratios": {
            "Separate_vs_plain": 2.004,
            "Colocated_vs_plain": 1.5,
            "Separate_vs_Colocated": 1.333,
        },
    }


def test_only_the_part_between_the_markers_is_rewritten() -> None:
    quoted = quote.quote(TEXT, report())
    assert quoted.startswith(f"before\n{quote.BEGIN}\n")
    assert quoted.endswith(f"\n{quote.END}\nafter\n")
    assert "old" not in quoted
    assert quote.quote(quoted, report()) == quoted


def test_overlapping_ranges_are_said_to_claim_no_difference() -> None:
    assert "no difference is claimed" not in quote.quote(TEXT, report())
    quoted = quote.quote(TEXT, report(plain=(9.0, 15.0)))
    assert "1.50 x \\* |" in quoted
    assert "2.00 x |" in quoted
    assert "no difference is claimed" in quoted
