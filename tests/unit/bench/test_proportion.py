"""A deeper target writes the same text; what each arrangement gains, and what is predicted."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bench.proportion.figures import all_ratios, of_depth
from bench.proportion.inert_layers import deepen, freed_draft
from bench.sides.services import Answer, Counts
from bench.speculation.figures import Measured
from outrider.client import Counters
from outrider.contract.settings import ModelSettings
from outrider.kernels.cpu.numeric_kind import NumericPath
from outrider.worker.checkpoints.load import load
from outrider.worker.checkpoints.prepare import prepare
from outrider.worker.checkpoints.prepared import PreparedModel
from outrider.worker.kv.kv_cache import HostKVCache
from outrider.worker.model.llama import Llama, PassOptions
from outrider.worker.model.rows import prompt_rows
from tests.tiny_models import write_tiny

TOKENS = np.arange(1, 40, dtype=np.int32)
TOKENS_OF_ANSWER = 10
COSTS = {1: 0.004, 9: 0.008}


def prepared(folder: Path, cache: Path) -> PreparedModel:
    uri = f"file://{folder}"
    return prepare(ModelSettings(uri=uri), cache, lambda stage, done, total: None)


def logits(model: PreparedModel, path: NumericPath) -> np.ndarray:
    config, weights = load(model)
    kv_cache = HostKVCache(config.kv_shape, 6, 192)
    llama = Llama(config, weights, path, kv_cache, 64, PassOptions(1))
    block_table = kv_cache.admit(TOKENS[:0], 192)
    assert block_table is not None
    return llama.forward(prompt_rows(TOKENS, 0, block_table, wants_output=True)).copy()


@pytest.mark.parametrize(
    ("family", "path"),
    [("llama", NumericPath.FP32), ("qwen2", NumericPath.INT8), ("qwen3", NumericPath.INT8)],
)
def test_a_deeper_model_has_the_same_logits(tmp_path: Path, family: str, path: NumericPath) -> None:
    own = prepared(write_tiny(tmp_path / "own", family), tmp_path / "cache")
    size = deepen(own, 3, tmp_path / "deeper")
    deeper = prepared(tmp_path / "deeper", tmp_path / "cache")
    assert deeper.config().layers == 3 * own.config().layers
    assert np.array_equal(logits(own, path), logits(deeper, path))
    assert size == sum(file.stat().st_size for file in (tmp_path / "deeper").iterdir())


def test_layers_that_are_added_are_no_shortcut(tmp_path: Path) -> None:
    own = prepared(write_tiny(tmp_path / "own"), tmp_path / "cache")
    deepen(own, 2, tmp_path / "deeper")
    _, weights = load(prepared(tmp_path / "deeper", tmp_path / "cache"))
    layers = own.config().layers
    for name in ("self_attn.q_proj", "self_attn.v_proj", "mlp.gate_proj", "mlp.up_proj"):
        added = weights[f"model.layers.{layers}.{name}.weight"]
        assert added.std() * np.sqrt(added.shape[1]) == pytest.approx(1.0, rel=0.05)


def test_a_draft_is_freed_of_the_file_that_it_was_made_for(tmp_path: Path) -> None:
    source = write_tiny(tmp_path / "draft")
    config = source / "config.json"
    fields = json.loads(config.read_text())
    config.write_text(json.dumps(fields | {"target": {"gguf_sha256": "a"}}))
    freed_draft(source, tmp_path / "freed")
    assert json.loads((tmp_path / "freed" / "config.json").read_text()) == fields
    weights = (tmp_path / name / "model.safetensors" for name in ("draft", "freed"))
    assert len({file.read_bytes() for file in weights}) == 1


def measured(seconds: float, passes: int, rows: int = 0, **counters: Any) -> Measured:
    """One answer of ten tokens."""
    answer = Answer(
        token_ids=tuple(range(TOKENS_OF_ANSWER + 1)),
        tokens=TOKENS_OF_ANSWER,
        seconds=seconds,
        passes=passes,
        draft_rows=rows * passes,
        accepted_rows=TOKENS_OF_ANSWER - passes,
        wait_seconds=0.0,
        plain_seconds=0.0,
    )
    counted = Counters(passes=passes, steps=passes, host_seconds=0.001 * passes)
    for name, value in counters.items():
        setattr(counted, name, value)
    return Measured([[answer]], [Counts(counted, ())])


SIDES = {
    "plain 1": measured(0.06, passes=10),
    "plain 2": measured(0.05, passes=10),
    "Colocated": measured(0.04, passes=5, rows=4, drafting_seconds=0.005),
    "Separate": measured(0.025, passes=5, rows=4, draft_wait_seconds=0.0025),
}
STEPS = dict.fromkeys(SIDES, COSTS)


def test_gains_are_over_the_faster_plain_side() -> None:
    found = of_depth({"greedy": SIDES}, STEPS)["greedy"]
    assert found["plain_side"] == "plain 2"
    assert found["same_text"] == 1
    gains = {name: side["over_plain"] for name, side in found["sides"].items()}
    assert gains == pytest.approx(
        {"plain 1": 5 / 6, "plain 2": 1, "Colocated": 1.25, "Separate": 2}
    )


def test_a_prediction_is_of_step_costs_acceptance_waits_and_drafting() -> None:
    found = of_depth({"greedy": SIDES}, STEPS)["greedy"]["sides"]
    plain = 1 / (0.004 + 0.001)
    colocated = 2 / (0.006 + 0.001 + 0.001)
    beside = 2 / (0.006 + 0.001 + 0.0005)
    assert found["plain 2"]["predicted_over_plain"] == 1
    assert found["Colocated"]["predicted_over_plain"] == pytest.approx(colocated / plain)
    assert found["Separate"]["predicted_over_plain"] == pytest.approx(beside / plain)
    assert found["Colocated"]["over_prediction"] == pytest.approx(1.25 * plain / colocated)


def test_the_best_arrangement_is_that_over_all_modes() -> None:
    modes = of_depth({"greedy": SIDES, "temperature 0.8": SIDES}, STEPS)
    ratios = all_ratios({8: modes})
    assert ratios["best_vs_plain_8x"] == ratios["Separate_vs_plain_8x"] == pytest.approx(2)
    assert ratios["Colocated_vs_plain_8x"] == pytest.approx(1.25)
    assert ratios["Colocated_predicted_8x"] == pytest.approx(2 / 0.008 * 0.005)
