"""Targets that no draft can be trained for are refused by name."""

from pathlib import Path
from typing import Any

import pytest

from outrider.distil.errors import BadRecipe
from tests.distilling import find_target
from tests.tiny_models import write_tiny


@pytest.mark.parametrize(
    ("family", "fields", "named"),
    [
        ("gemma3_text", {}, "gemma3_text; allowed: llama, mistral, qwen2, qwen3"),
        ("phi3", {}, "phi3; allowed: llama, mistral, qwen2, qwen3"),
        ("mistral", {"sliding_window": 24}, "sees 24 tokens back; at least 384"),
        (
            "qwen2",
            {"use_sliding_window": True, "sliding_window": 24, "max_window_layers": 1},
            "sees 24 tokens back; at least 384",
        ),
    ],
)
def test_what_cannot_be_a_target_is_refused(
    tmp_path: Path, family: str, fields: dict[str, Any], named: str
) -> None:
    folder = write_tiny(tmp_path / "target", family, **fields)
    with pytest.raises(BadRecipe, match=named):
        find_target(folder, tmp_path / "cache")
