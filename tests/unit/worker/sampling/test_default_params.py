"""A model's own sampling params: which are taken, and what is left out."""

import json
from pathlib import Path

import pytest

from outrider.worker.errors import ModelError
from outrider.worker.sampling.default_params import default_sampling

QWEN = {"temperature": 0.7, "top_p": 0.8, "top_k": 20, "repetition_penalty": 1.05}


@pytest.mark.parametrize(
    ("fields", "found"),
    [
        ({}, {}),
        (QWEN | {"do_sample": True, "eos_token_id": 7, "max_new_tokens": 5}, QWEN),
        (QWEN | {"do_sample": False}, {"temperature": 0.0, "repetition_penalty": 1.05}),
        ({"temperature": None, "min_p": 0.1}, {"min_p": 0.1}),
        ({"temperature": -1, "top_p": 2, "top_k": "many", "min_p": 0.1}, {"min_p": 0.1}),
    ],
    ids=["silent", "set", "greedy", "null", "out of limits"],
)
def test_what_is_sound_is_taken(
    tmp_path: Path, fields: dict[str, object], found: dict[str, float]
) -> None:
    (tmp_path / "generation_config.json").write_text(json.dumps(fields))
    assert default_sampling(tmp_path) == found


def test_a_model_without_the_file_has_none(tmp_path: Path) -> None:
    assert default_sampling(tmp_path) == {}


def test_a_broken_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "generation_config.json").write_text("[")
    with pytest.raises(ModelError, match=r"generation_config\.json"):
        default_sampling(tmp_path)
