"""The card of a draft says what its folder holds and what it was trained on."""

from pathlib import Path
from typing import Any

import pytest

from outrider.distil.card import card
from outrider.distil.recipe import Recipe

CODE = {"name": "code", "prompts": "questions", "licence": "Apache-2.0"}


def fields(borrows: bool) -> dict[str, Any]:
    """What a report says of a small distillation."""
    return {
        "target": {"uri": "file:///target", "sha256": "1" * 64},
        "draft": {"bytes": 1000, "sha256": "2" * 64},
        "vocabulary": {"outputs": 100, "coverage": 0.9},
        "training": [{"steps": 10, "batch_tokens": 1200}],
        "data": {
            "tokens": 5000,
            "chats": 20,
            "of_other_runs": {"chats": 0, "tokens": 0},
            "prompts": [CODE, CODE, CODE | {"name": "templates"}],
            "begun_as": "layers 0 of small, sha256 3",
            "borrows": borrows,
        },
        "held_out": {
            "chats": 2,
            "tokens": 100,
            "top": {"1": 0.3, "2": 0.4, "4": 0.5, "8": 0.6},
            "tokens_per_pass": {"1": 1.3, "8": 1.9},
            "divergence": 3.5,
        },
    }


@pytest.mark.parametrize("borrows", [True, False])
def test_it_says_whose_embedding_the_draft_has(tmp_path: Path, borrows: bool) -> None:
    text = card(Recipe(target="file:///target", out=tmp_path), fields(borrows))
    assert ("the target's and not stored" in text) == borrows
    assert "layers 0 of small" in text


def test_a_set_of_prompts_that_takes_two_turns_is_listed_once(tmp_path: Path) -> None:
    text = card(Recipe(target="file:///target", out=tmp_path), fields(borrows=True))
    assert text.count("- code:") == 1
    assert text.count("- templates:") == 1
