"""`outrider simulate` as a user runs it: a process that starts the simulator."""

import json
import subprocess
import sys
from pathlib import Path

from tests.unit.simulator.simulations import DRAFT, TARGET, TRAFFIC


def simulate(*options: str) -> subprocess.CompletedProcess[str]:
    code = "import sys; from outrider.cli.app import main; main()"
    command = [sys.executable, "-P", "-c", code, "simulate", *options]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_figures_follow_from_file_and_seed(tmp_path: Path) -> None:
    file = tmp_path / "small.yaml"
    file.write_text("seconds: 2\nseed: 1\n" + TARGET + DRAFT + TRAFFIC)
    one, again, other = (
        simulate(str(file), "--json", "--plot", str(tmp_path / "a.svg")),
        simulate(str(file), "--json"),
        simulate(str(file), "--json", "--seed", "2"),
    )
    found = [json.loads(run.stdout)["summary"] for run in (one, again, other)]
    assert found[0] == found[1]
    assert found[0] != found[2]
    assert found[0]["speculation"]["tokens_per_pass"] > 1
    assert (tmp_path / "a.svg").stat().st_size > 1000
    assert "tokens per second" in simulate(str(file)).stdout


def test_a_wrong_file_ends_with_its_path_and_what_is_allowed(tmp_path: Path) -> None:
    file = tmp_path / "wrong.yaml"
    file.write_text(TARGET + "traffic: {rate: often}\n")
    run = simulate(str(file))
    assert run.returncode == 2
    assert run.stdout == ""
    words = f"outrider: {file}: traffic.rate: 'often' is not allowed; allowed: a number"
    assert words in run.stderr


def test_a_trace_that_is_not_there_is_named(tmp_path: Path) -> None:
    file = tmp_path / "traced.yaml"
    file.write_text(TARGET + "traffic: {trace: {file: gone.csv, format: Azure}}\n")
    run = simulate(str(file))
    assert run.returncode == 2
    assert f"{tmp_path / 'gone.csv'}: No such file or directory" in run.stderr
