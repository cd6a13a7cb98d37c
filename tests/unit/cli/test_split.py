"""`outrider profile --gpus N`: what it measures, prints, writes and refuses."""

import asyncio
import io
import json
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from rich.console import Console
from typer.testing import CliRunner

from outrider.cli.app import app
from outrider.cli.failures import BadInput
from outrider.cli.profile.split import Devices, jobs, split
from outrider.cli.profile.split_service import write_service
from outrider.cli.profile.split_table import render
from outrider.cli.service.file import read_service
from outrider.cli.terminal.progress import Lines
from outrider.cli.workers.supervisor import StartOptions
from outrider.contract.settings import Device, Role
from outrider.operator.plan import PlanOptions
from outrider.operator.spec import load

EXAMPLE = Path("examples/smollm2.yaml")
TABLE = {
    "target": {str(n): {"rows": {"1": s, "16": s, "64": 4 * s}} for n, s in ((1, 0.03), (2, 0.02))},
    "draft": {"1": {"rows": {"1": 0.002, "16": 0.002}}},
}
FAKE = """
import json, sys
settings = json.load(open(sys.argv[sys.argv.index("--settings") + 1]))
if sys.argv[1] == "measure":
    seconds = {"target": 0.02, "draft": 0.002}[settings["role"]] / settings["tensor_parallel"]
    print(json.dumps({"rows": {"1": seconds, "16": seconds}}))
"""
"""A worker whose passes are shorter the more ranks it has."""


def ask(folder: Path, table: Any = TABLE, devices: int = 3) -> dict[str, Any]:
    file = folder / "table.json"
    file.write_text(json.dumps(table))
    start = StartOptions(PlanOptions(cache=str(folder / "cache")), Lines())
    return asyncio.run(split(EXAMPLE, Devices(devices, on_gpu=True), start, file))


def test_the_table_that_it_chose_from_is_printed_and_can_be_given_again(tmp_path: Path) -> None:
    found = ask(tmp_path)
    assert {(one["target"], one["draft"]) for one in found["splits"]} == {(1, 1), (2, 1), (2, 0)}
    assert (found["recommended"]["target"], found["recommended"]["draft"]) == (2, 1)
    assert ask(tmp_path, found) == found
    console = Console(record=True, width=120, file=io.StringIO())
    console.print(render(found))
    shown = console.export_text()
    assert all(words in shown for words in ("2 + 1 of 3 GPUs", "20.00", "assumed"))


def test_both_models_are_measured_at_every_degree(tmp_path: Path) -> None:
    fake = tmp_path / "fake.py"
    fake.write_text(FAKE)
    options, command = PlanOptions(cache=str(tmp_path / "cache")), (sys.executable, str(fake))
    start = StartOptions(options, Lines(), command, tmp_path)
    found = asyncio.run(split(EXAMPLE, Devices(3, on_gpu=False), start))
    first = {
        role: {degree: facts["rows"]["1"] for degree, facts in by_degree.items()}
        for role, by_degree in found["costs"].items()
    }
    assert first["target"] == pytest.approx({"1": 0.02, "2": 0.01, "3": 0.02 / 3})
    assert first["draft"] == pytest.approx({"1": 0.002, "2": 0.001})


def test_a_target_has_as_many_as_all_and_a_draft_one_fewer() -> None:
    wanted = list(jobs(read_service(EXAMPLE), Devices(3, on_gpu=False), PlanOptions()))
    degrees = [(role, degree) for role, degree, _ in wanted]
    assert degrees == [
        (Role.TARGET, 1), (Role.DRAFT, 1), (Role.TARGET, 2), (Role.DRAFT, 2), (Role.TARGET, 3),
    ]  # fmt: skip
    for role, degree, settings in wanted:
        assert (settings.role, settings.tensor_parallel) == (role, degree)
        assert (settings.device, settings.threads) == (Device.CPU, 1)


def test_the_service_that_is_written_is_the_recommended_one(tmp_path: Path) -> None:
    found, file = ask(tmp_path), tmp_path / "split.yaml"
    write_service(EXAMPLE, found, file)
    service = load(file.read_text())
    assert service.spec.target.parallelism.tensor == 2
    assert service.spec.draft is not None
    assert service.spec.draft.placement == "Separate"
    assert service.spec.speculation.nodes_ahead == found["recommended"]["nodes_ahead"]
    document = yaml.safe_load(file.read_text())["spec"]
    assert document["target"]["resources"]["limits"] == {"nvidia.com/gpu": 2}
    assert Path(document["draft"]["model"]["uri"].removeprefix("file://")).is_absolute()


def test_a_service_may_leave_speculation_empty(tmp_path: Path) -> None:
    given, file = tmp_path / "given.yaml", tmp_path / "split.yaml"
    head, _ = EXAMPLE.read_text().split("  speculation:")
    given.write_text(head + "  speculation:\n")
    slow = TABLE | {"draft": {"1": {"rows": {"1": 9.0}}}}
    write_service(given, ask(tmp_path, slow), file)
    assert load(file.read_text()).spec.speculation.mode == "Disabled"


@pytest.mark.parametrize(
    ("table", "words"),
    [([], "an object"), ({"target": 1}, "target: missing"), (TABLE | {"draft": {}}, "draft")],
)
def test_a_table_that_is_none_is_refused_by_name(table: Any, words: str, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=words):
        ask(tmp_path, table)


def test_a_table_of_larger_degrees_alone_is_refused(tmp_path: Path) -> None:
    table = TABLE | {"target": {"4": TABLE["target"]["1"]}}
    with pytest.raises(BadInput, match="target: 4; none is at most 3"):
        ask(tmp_path, table)


@pytest.mark.parametrize(("on_gpu", "words"), [(True, "GPUs"), (False, "processors")])
def test_more_than_the_machine_has_needs_a_table(on_gpu: bool, words: str) -> None:
    with pytest.raises(BadInput, match=f"this machine has .* {words}.*--table"):
        Devices(100_000, on_gpu).check_here()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--gpus", "2", "--ranks", "2"), "do not go together"),
        (("--table", "x.json"), "needs --gpus or --ranks"),
        (("--ranks", "2", "--table", "no.json"), "no.json"),
        (("--gpus", "1"), "2 to 64"),
    ],
)
def test_what_cannot_be_is_refused_by_name(arguments: tuple[str, ...], words: str) -> None:
    given = ["profile", "-f", str(EXAMPLE), *arguments]
    result = CliRunner(env={"COLUMNS": "200"}).invoke(app, given)
    assert result.exit_code != 0
    assert words in result.output + str(result.exception)
