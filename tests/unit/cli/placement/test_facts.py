"""What is remembered of a service on this machine."""

import dataclasses
import json
from pathlib import Path

import pytest

import outrider
from outrider.cli.placement.facts import DOUBT, HOPED_FOR, KEPT, Facts, facts_file
from outrider.contract.counters import Counters
from outrider.contract.settings import Dtype, ModelSettings, Role, WorkerSettings
from outrider.operator.spec import Placement


def settings(folder: Path, **changes: object) -> WorkerSettings:
    model = ModelSettings(uri=f"file://{folder}/target")
    draft = ModelSettings(uri=f"file://{folder}/draft")
    base = WorkerSettings(role=Role.TARGET, name="tiny", model=model, colocated=draft)
    return dataclasses.replace(base, **changes)  # type: ignore[arg-type]


def test_facts_come_back_equal(tmp_path: Path) -> None:
    facts = Facts(costs={"target": {}}, first_guesses=40, first_hits=18)
    facts = facts.with_trial(Placement.COLOCATED, 0.9)
    facts.write(tmp_path / "new" / "facts.json")
    assert Facts.read(tmp_path / "new" / "facts.json") == facts


@pytest.mark.parametrize(
    "text",
    [
        *("", "[]", "nonsense", '{"unknown": 1}', '{"first_hits": 3, "first_guesses": 2}'),
        *('{"first_hits": "3"}', '{"over_expected": {"Separate": -1}}', '{"over_expected": 3}'),
        *('{"row_seconds": {"1": 0}}', '{"row_seconds": [3]}'),
    ],
)
def test_what_cannot_be_read_is_nothing_known(tmp_path: Path, text: str) -> None:
    (tmp_path / "facts.json").write_text(text)
    assert Facts.read(tmp_path / "facts.json") == Facts()
    assert Facts.read(tmp_path / "no such file") == Facts()


def test_a_pair_that_never_ran_is_hoped_to_be_good() -> None:
    assert Facts().acceptance == pytest.approx(HOPED_FOR)


def test_runs_teach_how_often_the_draft_is_right() -> None:
    facts = Facts().ran(Counters(first_guesses=1000, first_hits=400, passes=1000, tokens=1500))
    assert facts.acceptance == pytest.approx(0.4, abs=0.01)
    assert facts.ran(Counters(passes=50, tokens=50)) == facts, "without a draft nothing is learnt"


def test_a_few_guesses_say_little() -> None:
    facts = Facts().ran(Counters(first_guesses=1, first_hits=0, passes=1))
    assert facts.acceptance > HOPED_FOR * DOUBT / (DOUBT + 2)


def test_what_is_older_fades() -> None:
    facts = Facts().ran(Counters(first_guesses=10 * KEPT, first_hits=0, passes=1))
    for _ in range(5):
        facts = facts.ran(Counters(first_guesses=KEPT, first_hits=KEPT, passes=1))
    assert facts.acceptance > 0.9
    assert facts.first_guesses <= KEPT


@pytest.mark.parametrize(("hits", "least", "most"), [(0, 0.0, 0.05), (KEPT, 0.9, 0.99)])
def test_acceptance_is_neither_none_nor_certain(hits: int, least: float, most: float) -> None:
    facts = Facts().ran(Counters(first_guesses=KEPT, first_hits=hits, passes=1))
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
