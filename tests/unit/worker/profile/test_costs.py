"""The quick measurement of a pair's step costs."""

import dataclasses
import json
from pathlib import Path

import pytest

from outrider.contract.settings import Device, Dtype, ModelSettings, Role, WorkerSettings
from outrider.worker.host.process import cores
from outrider.worker.launch.prepare import prepare_models
from outrider.worker.profile import costs
from tests.tiny_models import write_draft_of, write_tiny


@pytest.mark.parametrize(
    ("role", "processors", "counts"),
    [
        (Role.TARGET, 1, [1]),
        (Role.TARGET, 2, [1, 2]),
        (Role.TARGET, 4, [1, 2, 3, 4]),
        (Role.TARGET, 16, [1, 2, 8, 15, 16]),
        (Role.DRAFT, 1, [1]),
        (Role.DRAFT, 2, [1, 2]),
        (Role.DRAFT, 3, [1, 2]),
        (Role.DRAFT, 16, [1, 2, 4]),
    ],
)
def test_few_numbers_of_threads_are_measured(
    role: Role, processors: int, counts: list[int]
) -> None:
    assert costs.thread_counts(role, processors) == counts


def test_both_models_are_measured_in_one_process(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = write_tiny(tmp_path / "target", layers=3)
    draft = write_draft_of(target, tmp_path / "draft", noise=0.01, layers=1)
    settings = WorkerSettings(
        role=Role.TARGET,
        name="tiny",
        model=ModelSettings(uri=f"file://{target}", dtype=Dtype.INT8),
        colocated=ModelSettings(uri=f"file://{draft}"),
        device=Device.CPU,
        cache=str(tmp_path / "cache"),
    )
    assert costs.main(settings) == 0
    *stages, measured = map(json.loads, capsys.readouterr().out.splitlines())
    jobs = costs.jobs(settings, cores())
    assert [one["done"] for one in stages] == list(range(len(jobs)))
    for role, threads in jobs:
        found = measured[role][str(threads)]
        assert min(found["rows"].values()) > 0
        assert {"1", "8", "64"} <= found["rows"].keys()
    assert measured["target"]["1"]["dtype"] == "int8"
    alone = dataclasses.replace(settings, colocated=None)
    assert {role for role, _ in costs.jobs(alone, cores())} == {Role.TARGET}


def test_a_draft_is_measured_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = ModelSettings(uri=f"file://{write_tiny(tmp_path / 'draft')}", dtype=Dtype.FP32)
    cache = str(tmp_path / "cache")
    settings = WorkerSettings(
        role=Role.DRAFT, name="tiny", model=model, device=Device.CPU, cache=cache
    )
    assert costs.main(settings) == 0
    *_, measured = map(json.loads, capsys.readouterr().out.splitlines())
    assert measured.keys() == {"draft"}
    assert "1" in measured["draft"]


@pytest.mark.parametrize("dtype", [Dtype.AUTO, Dtype.INT4])
def test_what_is_asked_for_again_is_measured_again(tmp_path: Path, dtype: Dtype) -> None:
    model = ModelSettings(uri=f"file://{write_tiny(tmp_path / 'target')}", dtype=dtype)
    cache = tmp_path / "cache"
    settings = WorkerSettings(role=Role.TARGET, name="tiny", model=model, cache=str(cache))
    prepared = prepare_models(settings).own
    costs.curve(model, Role.TARGET, prepared, threads=1)
    [file] = cache.rglob("curves-*.json")
    wrong = {path: dict.fromkeys(rows, 1e-9) for path, rows in json.loads(file.read_text()).items()}
    file.write_text(json.dumps(wrong))
    again = costs.curve(model, Role.TARGET, prepared, threads=1)
    assert min(again["rows"].values()) > 1e-9
    assert json.loads(file.read_text())[again["dtype"]] == again["rows"], "and a worker goes by it"
