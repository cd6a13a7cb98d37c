"""README quotes the report of the last measurement, and nothing else."""

import json
from pathlib import Path
from typing import Any

import pytest

from bench import quote

TEXT = f"before\n{quote.BEGIN}\nold\n{quote.END}\nafter\n"


def side(low: float, high: float) -> dict[str, Any]:
    return {"tokens_per_second": {"median": (low + high) / 2, "low": low, "high": high, "n": 5}}


def report(plain: tuple[float, float] = (9.0, 11.0)) -> dict[str, Any]:
    """Plain decoding has the range `plain` in the second mode."""
    others = {"serial": (14.0, 16.0), "async": (18.0, 22.0)}
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
        "ratios": {"async_vs_plain": 2.004, "serial_vs_plain": 1.5, "async_vs_serial": 1.333},
    }


def test_readme_quotes_the_last_measurements(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["quote", "--check"])
    assert quote.main() == 0, "run `python -m bench.quote`"


def test_only_the_part_between_the_markers_is_rewritten() -> None:
    quoted = quote.quote(TEXT, report())
    assert quoted.startswith(f"before\n{quote.BEGIN}\n")
    assert quoted.endswith(f"\n{quote.END}\nafter\n")
    assert "old" not in quoted
    assert quote.quote(quoted, report()) == quoted


def test_ratios_machine_and_date_are_quoted() -> None:
    quoted = quote.quote(TEXT, report())
    for words in (
        "2.00 x |",
        "1.50 x |",
        "1.33 x |",
        "Some CPU (avx2, avx_vnni), 2 processors, 23.5 GiB",
        "on 2026-01-02;",
    ):
        assert words in quoted
    assert "no difference is claimed" not in quoted


def test_overlapping_ranges_are_said_to_claim_no_difference() -> None:
    quoted = quote.quote(TEXT, report(plain=(9.0, 15.0)))
    assert "1.50 x \\* |" in quoted
    assert "2.00 x |" in quoted
    assert "no difference is claimed" in quoted


def test_without_a_report_no_number_is_quoted() -> None:
    assert (
        quote.quote(TEXT, None)
        == f"before\n{quote.BEGIN}\n{quote.UNMEASURED}\n{quote.END}\nafter\n"
    )


@pytest.mark.parametrize("text", ["none", quote.BEGIN, f"{quote.END} {quote.BEGIN}"])
def test_a_readme_without_markers_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="README lacks"):
        quote.quote(text, report())


def test_check_tells_a_stale_readme_and_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    readme, measured = tmp_path / "README.md", tmp_path / "speculation.json"
    text = TEXT + "\n".join((*quote.PROCESSORS, *quote.PEERS))
    readme.write_text(text, encoding="utf-8")
    measured.write_text(json.dumps(report()), encoding="utf-8")
    arguments = ["quote", "--readme", str(readme), "--report", str(measured)]
    monkeypatch.setattr("sys.argv", [*arguments, "--check"])
    assert quote.main() == 1
    assert readme.read_text(encoding="utf-8") == text
    monkeypatch.setattr("sys.argv", arguments)
    assert quote.main() == 0
    monkeypatch.setattr("sys.argv", [*arguments, "--check"])
    assert quote.main() == 0
