"""Step costs as a table and as a picture."""

import io
from pathlib import Path

from rich.console import Console

from outrider.cli.profile.step_costs import plot, table

COSTS = {
    "rows": [1, 2, 4],
    "contexts": [128, 512],
    "batches": [1, 4],
    "seconds": [
        [[0.001, 0.002, 0.003], [0.002, 0.003, 0.004]],
        [[0.005, 0.005, 0.005], [0.006, 0.006, 0.0065]],
    ],
}


def test_a_column_stands_for_requests_and_context() -> None:
    out = io.StringIO()
    Console(width=120, file=out).print(table("target", COSTS))
    lines = [line.split() for line in out.getvalue().splitlines() if line.strip()]
    assert lines[0] == ["target"]
    assert "4 requests, 512 tokens" in out.getvalue()
    assert lines[-1] == ["4", "3.00", "ms", "4.00", "ms", "5.00", "ms", "6.50", "ms"]
    assert lines[-3] == ["1", "1.00", "ms", "2.00", "ms", "-", "-"]


def test_the_picture_has_a_line_for_each_column(tmp_path: Path) -> None:
    file = tmp_path / "costs.svg"
    plot("target", COSTS, file)
    text = file.read_text()
    assert text.count('id="line2d_') > 4
    for name in ("1 request, 128 tokens", "4 requests, 512 tokens"):
        assert name in text
