"""Answers of other runs: which are taken, which are left out, which are refused."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from outrider.distil.errors import BadRecipe
from outrider.distil.other_answers import (
    check_others,
    described_by,
    held_out_by,
    order_of,
    without,
)
from outrider.distil.recipe import Recipe, answers_of
from outrider.distil.shards import ANSWERED, ASKED, GIVEN, Chat, save_shard
from outrider.distil.whole_files import write_json

OURS = {"target": "a", "layout": "b", "longest": 384, "seed": 1, "held_out": 2, "prompts": "p"}


def chat(*tokens: int, writers: tuple[int, ...]) -> Chat:
    features = np.zeros((len(tokens) - 1, 4), np.float16)
    return Chat(np.array(tokens, np.int32), np.array(writers, np.int8), features)


def answers_in(folder: Path, **other: Any) -> Path:
    write_json(answers_of(folder) / "recipe.json", OURS | other)
    save_shard(answers_of(folder), 0, [chat(1, 2, writers=(GIVEN, ANSWERED))])
    return folder


def recipe(out: Path, *folders: Path) -> Recipe:
    return Recipe(target="file://x", out=out, answers_from=folders)


def test_answers_of_another_seed_and_other_prompts_are_taken(tmp_path: Path) -> None:
    other = answers_in(tmp_path / "other", seed=2, prompts="c", held_out=7)
    check_others(recipe(tmp_path / "ours", other), OURS)
    assert held_out_by(other) == 7


def test_the_same_chats_are_not_taken_twice(tmp_path: Path) -> None:
    again, one, other = (
        answers_in(tmp_path / name, seed=seed)
        for name, seed in (("again", 1), ("one", 2), ("other", 2))
    )
    with pytest.raises(BadRecipe, match=r"again: the same chats as .*ours, for seed and prompts"):
        check_others(recipe(tmp_path / "ours", again), OURS)
    with pytest.raises(BadRecipe, match=r"other: the same chats as .*one, .* another `seed`"):
        check_others(recipe(tmp_path / "ours", one, other), OURS)
    check_others(recipe(tmp_path / "ours", one, answers_in(tmp_path / "third", seed=3)), OURS)


def test_answers_are_not_read_where_nothing_is_trained(tmp_path: Path) -> None:
    other = answers_in(tmp_path / "other", seed=2)
    asked = recipe(tmp_path / "ours", other).model_copy(update={"only_answers": True})
    with pytest.raises(BadRecipe, match="answersFrom and onlyAnswers: not both"):
        check_others(asked, OURS)


def test_the_order_of_runs_and_their_prompts_are_told(tmp_path: Path) -> None:
    one, two = (answers_in(tmp_path / str(seed), seed=seed) for seed in (2, 3))
    assert order_of([one, two]) == [[2, "p", 1], [3, "p", 1]]
    assert described_by(one)[0]["licence"] == "not told"
    write_json(answers_of(two) / "prompts.json", [{"name": "mine.txt", "licence": "MIT"}])
    assert described_by(two) == [{"name": "mine.txt (in 3)", "licence": "MIT"}]


@pytest.mark.parametrize(("name", "value"), [("target", "z"), ("layout", "z"), ("longest", 1)])
def test_answers_of_another_target_are_refused(tmp_path: Path, name: str, value: Any) -> None:
    other = answers_in(tmp_path / "other", **{"seed": 2, name: value})
    with pytest.raises(BadRecipe, match=f"other: answers of another target: {name} {value}, not"):
        check_others(recipe(tmp_path / "ours", other), OURS)


def test_a_folder_without_answers_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadRecipe, match=r"answersFrom .*nothing: no answers of an outrider disti"):
        check_others(recipe(tmp_path / "ours", tmp_path / "nothing"), OURS)
    write_json(answers_of(tmp_path / "begun") / "recipe.json", OURS)
    with pytest.raises(BadRecipe, match=r"begun: no answers"):
        check_others(recipe(tmp_path / "ours", tmp_path / "begun"), OURS)


def test_a_folder_is_named_once_and_is_not_ours(tmp_path: Path) -> None:
    ours, other = answers_in(tmp_path / "ours"), answers_in(tmp_path / "other", seed=2)
    for folders in ((ours,), (other, tmp_path / "ours" / ".." / "other")):
        with pytest.raises(BadRecipe, match="named twice, or is `out`"):
            check_others(recipe(ours, *folders), OURS)


def test_questions_that_are_held_out_are_left_out() -> None:
    held_out = chat(1, 2, 3, writers=(GIVEN, GIVEN, ANSWERED))
    same = chat(1, 2, 4, 5, writers=(GIVEN, GIVEN, ANSWERED, ANSWERED))
    other = chat(1, 3, 3, writers=(GIVEN, GIVEN, ANSWERED))
    assert without([same, other], [held_out]) == [other]


def test_questions_that_the_target_writes_are_kept() -> None:
    begun = (GIVEN, ASKED, ANSWERED)
    held_out, other = chat(1, 2, 3, writers=begun), chat(1, 2, 4, writers=begun)
    assert without([other], [held_out]) == [other]


def test_an_answer_without_a_token_is_kept() -> None:
    empty = chat(1, 2, writers=(GIVEN, GIVEN))
    assert without([empty], [chat(1, 3, 3, writers=(GIVEN, GIVEN, ANSWERED))]) == [empty]
