"""The YAML of a distillation: paths, names, and what is refused."""

from pathlib import Path

import pytest

from outrider.contract.settings import Dtype
from outrider.distil.errors import BadRecipe
from outrider.distil.recipe import Recipe, read_recipe

EXAMPLES = Path(__file__).parents[3] / "examples" / "distil"


def read(folder: Path, text: str) -> Recipe:
    (folder / "draft.yaml").write_text(text)
    return read_recipe(folder / "draft.yaml")


def test_paths_are_those_of_the_file_s_folder_and_names_of_sets_stay(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("Why?\n")
    text = "{target: 'file://t', out: d, prompts: [mine.txt, templates], answersFrom: [/a, b]}"
    found = read(tmp_path, text)
    assert (found.target, found.out) == (f"file://{tmp_path}/t", tmp_path / "d")
    assert found.prompts == (str(tmp_path / "mine.txt"), "templates")
    assert found.answers_from == (Path("/a"), tmp_path / "b")
    assert (found.test_prompts, found.begin_with) == (None, None)


def test_the_model_that_has_the_layers_is_found_like_the_target(tmp_path: Path) -> None:
    here = read(tmp_path, "{target: 'file://t', out: d, layersFrom: 'file://small'}")
    assert here.layers_from == f"file://{tmp_path}/small"
    there = read(tmp_path, "{target: 'file://t', out: d, layersFrom: 'hf://a/b'}")
    assert there.layers_from == "hf://a/b"


def test_a_target_elsewhere_stays_what_it_is(tmp_path: Path) -> None:
    found = read(tmp_path, "{target: 'package://a/b', out: d, layers: [0, 2], dtype: int8}")
    assert (found.target, found.layers, found.dtype) == ("package://a/b", (0, 2), Dtype.INT8)


def test_the_examples_are_recipes_with_prompts_that_are_there() -> None:
    files = sorted(EXAMPLES.glob("*.yaml"))
    assert files
    for found in map(read_recipe, files):
        assert found.test_prompts is not None
        assert found.test_prompts.is_file()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{out: d}", "target: missing; allowed: a URI"),
        ("{target: 'hf://a/b', out: d, token: 3}", "token: unknown key; allowed: the keys target"),
        (
            "{target: 'hf://a/b', out: d, tokens: 0}",
            "tokens: 0 is not allowed; allowed: an integer",
        ),
        ("{target: 'hf://a/b', out: d, dtype: int9}", "dtype: 'int9' is not allowed; allowed: au"),
        ("{target: 'hf://a/b', out: d, learningRate: 2}", "learningRate: 2 is not allowed; allow"),
        ("[", "line 1, column 2: not YAML"),
    ],
)
def test_what_is_not_allowed_is_named_with_the_file(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(BadRecipe) as refused:
        read(tmp_path, text)
    assert str(refused.value).startswith(f"{tmp_path / 'draft.yaml'}: {words}")
