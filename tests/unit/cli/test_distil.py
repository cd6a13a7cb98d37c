"""What `outrider distil` says and asks for, without a distillation."""

from pathlib import Path

import pytest

from outrider.cli.commands.distil_options import layer_numbers, prompt_names, recipe, target_uri
from outrider.cli.failures import BadInput
from outrider.cli.lab.distil import duration, stage


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(10, "under a minute"), (90, "2 min"), (3600, "60 min"), (9000, "2 h"), (90000, "25 h")],
)
def test_durations_are_words(seconds: float, words: str) -> None:
    assert duration(seconds) == words


def test_a_stage_has_the_time_that_is_left_once_it_is_known() -> None:
    assert stage({"stage": "answers", "seconds_left": None}) == "answers"
    assert stage({"stage": "answers", "seconds_left": 600.0}) == "answers, 10 min left"


def test_paths_are_absolute_and_names_of_sets_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.txt").write_text("Why?\n")
    assert prompt_names(["mine.txt", "templates"]) == [str(tmp_path / "mine.txt"), "templates"]
    assert target_uri("file://here") == f"file://{tmp_path / 'here'}"
    assert target_uri("package://a/b") == "package://a/b"


def test_layers_are_numbers() -> None:
    assert layer_numbers("0,1,29") == [0, 1, 29]
    with pytest.raises(BadInput, match="--layers first"):
        layer_numbers("first")


def test_a_recipe_leaves_out_what_is_not_given() -> None:
    assert recipe(out=Path("/a"), layers=None, tokens=3) == {"out": "/a", "tokens": 3}
