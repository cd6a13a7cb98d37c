"""What is remembered of a service on this machine."""

import dataclasses
import json
from pathlib import Path

import pytest

import outrider
from outrider.cli.placement.facts import DOUBT, HOPED_FOR, KEPT, Facts, PassSeconds, facts_file
from outrider.contract.settings import Dtype, ModelSettings, Role, WorkerSettings


def settings(folder: Path, **changes: object) -> WorkerSettings:
    model = ModelSettings(uri=f"file://{folder}/target")
    draft = ModelSettings(uri=f"file://{folder}/draft")
    base = WorkerSettings(role=Role.TARGET, name="tiny", model=model, colocated=draft)
    return dataclasses.replace(base, **changes)  # type: ignore[arg-type]


def test_facts_come_back_equal(tmp_path: Path) -> None:
    passes = PassSeconds({1: 0.004, 8: 0.005}, {2: 0.001})
    facts = Facts(
        {2: passes}, dataclasses.replace(passes, draft={}), first_guesses=40.0, first_hits=18.0
    )
    facts = dataclasses.replace(facts, rates={"plain, 2 threads": 250.0})
    facts.write(tmp_path / "new" / "facts.json")
    assert Facts.read(tmp_path / "new" / "facts.json") == facts


@pytest.mark.parametrize(
    "text",
    [
        *("", "[]", "nonsense", "{}", '{"alone": {}, "beside": null, "unknown": 1}'),
        '{"alone": {}, "beside": null, "first_hits": 3, "first_guesses": 2}',
        '{"alone": {}, "beside": null, "rates": {"plain, 1 thread": 0}}',
        '{"alone": {"1": {"target": {"1": 0}, "draft": {}}}, "beside": null}',
        '{"alone": {"1": {"target": {}, "draft": {}}}, "beside": null}',
        '{"alone": {"1": 3}, "beside": null}',
    ],
)
def test_what_cannot_be_read_is_nothing_known(tmp_path: Path, text: str) -> None:
    (tmp_path / "facts.json").write_text(text)
    assert Facts.read(tmp_path / "facts.json") == Facts()
    assert Facts.read(tmp_path / "no such file") == Facts()


def test_a_pair_that_never_ran_is_hoped_to_be_good() -> None:
    assert Facts().acceptance == pytest.approx(HOPED_FOR)


def test_runs_teach_how_often_the_draft_is_right() -> None:
    facts = Facts().guessed(1000, 400)
    assert facts.acceptance == pytest.approx(0.4, abs=0.01)
    assert facts.guessed(0, 0) == facts, "without a draft nothing is learnt"


def test_a_few_guesses_say_little() -> None:
    facts = Facts().guessed(1, 0)
    assert facts.acceptance > HOPED_FOR * DOUBT / (DOUBT + 2)


def test_what_is_older_fades() -> None:
    facts = Facts().guessed(10 * KEPT, 0)
    for _ in range(5):
        facts = facts.guessed(KEPT, KEPT)
    assert facts.acceptance > 0.9
    assert facts.first_guesses <= KEPT


@pytest.mark.parametrize(("hits", "least", "most"), [(0, 0.0, 0.05), (KEPT, 0.9, 0.99)])
def test_acceptance_is_neither_none_nor_certain(hits: int, least: float, most: float) -> None:
    facts = Facts().guessed(KEPT, hits)
    assert least < facts.acceptance < most


def test_facts_of_another_service_model_setting_or_machine_lie_in_another_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "draft").mkdir()
    weights = tmp_path / "draft" / "model.safetensors"
    weights.write_text("first")
    base = settings(tmp_path)
    first = facts_file(tmp_path, base)
    assert facts_file(tmp_path, base) == first
    assert facts_file(tmp_path, settings(tmp_path, cache="elsewhere")) == first
    others = {
        facts_file(tmp_path, settings(tmp_path, max_running=2)),
        facts_file(tmp_path, settings(tmp_path, colocated=None)),
        facts_file(
            tmp_path,
            settings(tmp_path, model=ModelSettings(uri=base.model.uri, dtype=Dtype.BF16)),
        ),
    }
    weights.write_text("trained again")
    others.add(facts_file(tmp_path, base))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    others.add(facts_file(tmp_path, base))
    assert len(others) == 5
    assert first not in others


def test_facts_of_another_version_of_the_kernels_lie_in_another_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "kernels").mkdir()
    source = tmp_path / "kernels" / "linear.py"
    monkeypatch.setattr(outrider, "__path__", [str(tmp_path)])
    found = []
    for text in ("a = 1", "a = 2", "a = 1"):
        source.write_text(text)
        found.append(facts_file(tmp_path, settings(tmp_path / "models")))
    assert found[0] == found[2] != found[1]


def test_the_file_is_json_that_people_can_read(tmp_path: Path) -> None:
    Facts(first_guesses=2, first_hits=1).write(tmp_path / "facts.json")
    assert json.loads((tmp_path / "facts.json").read_text())["first_guesses"] == 2
