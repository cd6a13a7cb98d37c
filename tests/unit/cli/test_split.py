"""`outrider profile --gpus N --table FILE`: what it prints, writes and refuses."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from outrider.cli.app import app
from outrider.operator.spec import load

EXAMPLE = Path("examples/smollm2.yaml")
TABLE = {
    "target": {str(n): {"rows": {"1": s, "16": s, "64": 4 * s}} for n, s in ((1, 0.03), (2, 0.02))},
    "draft": {"1": {"rows": {"1": 0.002, "16": 0.002}}},
}


@pytest.fixture(autouse=True)
def machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Two processors, on which nothing ran before."""
    monkeypatch.setattr("outrider.cli.placement.choose.CACHE", tmp_path / "cache")
    monkeypatch.setattr("outrider.cli.split.processors.count", lambda: 2)


def run(*arguments: str | Path) -> tuple[int, str]:
    result = CliRunner().invoke(app, ["profile", "-f", *map(str, arguments)])
    return result.exit_code, result.output + str(result.exception or "")


@pytest.fixture
def table(tmp_path: Path) -> Path:
    file = tmp_path / "table.json"
    file.write_text(json.dumps(TABLE))
    return file


def printed(table: Path, *more: str | Path) -> dict[str, Any]:
    status, output = run(EXAMPLE, "--gpus", "3", "--table", table, "--json", *more)
    assert status == 0, output
    found: dict[str, Any] = json.loads(output)
    return found


def test_the_table_that_it_chose_from_is_printed_and_can_be_given_again(
    table: Path, tmp_path: Path
) -> None:
    found = printed(table)
    names = {(one["target"], one["draft"]) for one in found["splits"]}
    assert names == {(1, 1), (2, 1), (2, 0)}
    assert (found["recommended"]["target"], found["recommended"]["draft"]) == (2, 1)
    again = tmp_path / "again.json"
    again.write_text(json.dumps(found))
    assert printed(again) == found


def test_the_service_that_is_written_is_the_recommended_one(table: Path, tmp_path: Path) -> None:
    file = tmp_path / "split.yaml"
    found = printed(table, "--write", file)
    service = load(file.read_text())
    assert service.spec.target.parallelism.tensor == 2
    assert service.spec.draft is not None
    assert service.spec.draft.placement == "Separate"
    assert service.spec.speculation.nodes_ahead == found["recommended"]["nodes_ahead"]
    document = yaml.safe_load(file.read_text())["spec"]
    assert document["target"]["resources"]["limits"] == {"nvidia.com/gpu": 2}
    assert Path(document["draft"]["model"]["uri"].removeprefix("file://")).is_absolute()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--gpus", "2", "--ranks", "2"), "do not go together"),
        (("--table", "x.json"), "needs --gpus or --ranks"),
        (("--ranks", "2", "--table", "no.json"), "no.json"),
        (("--gpus", "1"), "2<=x<=64"),
        (("--ranks", "3"), "this machine has 2 processors"),
    ],
)
def test_what_cannot_be_is_refused_by_name(arguments: tuple[str, ...], words: str) -> None:
    status, output = run(EXAMPLE, *arguments)
    assert status != 0
    assert words in " ".join(output.split())
