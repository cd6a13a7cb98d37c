"""The cut by measured times: what is measured, remembered and said."""

import json
from pathlib import Path

import pytest

from outrider.contract.settings import ModelSettings, PipelineSettings, Role, WorkerSettings
from outrider.worker.pipeline.cut import PartCosts
from outrider.worker.profile import cut
from tests.tiny_models import write_tiny


def settings_of(folder: Path, tensor: int = 1) -> WorkerSettings:
    return WorkerSettings(
        role=Role.TARGET,
        name="tiny",
        model=ModelSettings(uri=f"file://{folder}"),
        pipeline=PipelineSettings(stages=2),
        tensor_parallel=tensor,
        cache=str(folder / "cache"),
    )


@pytest.mark.parametrize("tensor", [1, 2])
def test_parts_are_measured_once_and_all_layers_are_given_out(
    tmp_path: Path,
    tensor: int,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    settings = settings_of(write_tiny(tmp_path, layers=6), tensor)
    assert cut.main(settings) == 0
    first = json.loads(capsys.readouterr().out)
    assert len(first["cut"]) == 2
    assert sum(first["cut"]) == 6
    assert first["words"].startswith(f"cut into {first['cut'][0]} + {first['cut'][1]} layers by ")
    monkeypatch.setattr(cut, "few_layers", None)  # nothing is loaded again
    assert cut.main(settings) == 0
    assert json.loads(capsys.readouterr().out) == first


def test_costs_are_the_least_of_many_times() -> None:
    passes = iter([(9.0, 8.0), (7.0, 9.0), *[(10.0, 10.0)] * cut.ROUNDS])
    costs = cut.least_costs(lambda _: next(passes), lambda: 0.5, lambda _: 0.25, layers=4)
    assert costs == PartCosts(layer=2.0, embedding=0.25, head=0.5)


def test_a_head_adds_its_time_and_that_of_sampling() -> None:
    costs = cut.least_costs(lambda _: (9.0, 8.0), lambda: 0.5, lambda _: 0.25, layers=4)
    assert costs.head == 1.5


def test_the_words_name_cut_and_costs() -> None:
    words = cut.in_words([17, 13], PartCosts(0.5e-3, 1e-6, 2.5e-3))
    figures = ("17 + 13 layers", "a layer 0.50 ms", "embedding 0.00 ms", "2.50 ms")
    assert [one for one in figures if one not in words] == []
