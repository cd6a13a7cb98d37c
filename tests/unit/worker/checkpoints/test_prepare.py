"""Preparing models: GGUF files equal their checkpoints, and the cache survives everything."""

import dataclasses
import json
import subprocess
import sys
from pathlib import Path

import gguf
import numpy as np
import pytest
import transformers
from safetensors.numpy import load_file, save_file

from outrider.contract.settings import (
    ModelSettings,
    PipelineSettings,
    Role,
    SettingsError,
    WorkerSettings,
)
from outrider.worker.checkpoints.config_file import read_config
from outrider.worker.checkpoints.gguf_file import GgufModel
from outrider.worker.checkpoints.gguf_rope import LLAMA3, llama3_divisors
from outrider.worker.checkpoints.gguf_tokenizer import tokenizer_of
from outrider.worker.checkpoints.load import load
from outrider.worker.checkpoints.prepare import main, prepare
from outrider.worker.checkpoints.prepared import PreparedModel
from outrider.worker.errors import ModelError
from outrider.worker.launch.prepare import prepare_models
from outrider.worker.model.config import LinearScaling, Llama3Scaling, LongScaling, ModelConfig
from tests.tiny_gguf import write_tiny_gguf
from tests.tiny_models import FAMILIES, LONG_ROPE, write_tiny

STAGES = ["hash", "tokenizer"]
DIVIDED_BY_HEAD = {"query_pre_attn_scalar": 16}
"""What most of Gemma 3 has, and a GGUF file does not say."""


class Steps:
    """Notes the stages it is told of."""

    def __init__(self) -> None:
        self.stages: list[str] = []

    def __call__(self, stage: str, done: int, total: int) -> None:
        assert 0 <= done <= total
        if stage not in self.stages:
            self.stages.append(stage)


def prepared(path: Path, cache: Path, lender: Path | None = None) -> PreparedModel:
    lender_uri = f"file://{lender}" if lender else None
    return prepare(ModelSettings(uri=f"file://{path}", embeddings_from=lender_uri), cache, Steps())


def as_in_gguf(config: ModelConfig) -> ModelConfig:
    return dataclasses.replace(config, norm_eps=float(np.float32(config.norm_eps)))


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("tied", [True, False])
def test_a_gguf_file_loads_as_the_checkpoint_it_was_made_of(
    tmp_path: Path, family: str, tied: bool
) -> None:
    fields = DIVIDED_BY_HEAD if family == "gemma3_text" else {}
    checkpoint = write_tiny(tmp_path / "hf", family, tie_word_embeddings=tied, **fields)
    path = write_tiny_gguf(checkpoint, tmp_path / "tiny.gguf")
    model = prepared(path, tmp_path / "cache")
    config, tensors = load(model)
    whole, expected = load(PreparedModel("hf", checkpoint, checkpoint, checkpoint, "0" * 64))
    assert config == as_in_gguf(whole)
    assert (config.context, config.end_ids, config.tied) == (1024, (256,), tied)
    assert tensors.keys() == expected.keys()
    for name, value in tensors.items():
        assert np.array_equal(value, expected[name]), name


@pytest.mark.parametrize("family", ["llama", "mistral", "gemma3_text"])
def test_a_window_and_linear_scaling_come_along(tmp_path: Path, family: str) -> None:
    linear = {"rope_type": "linear", "factor": 8.0, "rope_theta": 5e5}
    rope = {"full_attention": linear} if family == "gemma3_text" else linear
    fields = {"rope_parameters": rope, "sliding_window": 24, **DIVIDED_BY_HEAD}
    checkpoint = write_tiny(tmp_path / "hf", family, **fields)
    config = prepared(
        write_tiny_gguf(checkpoint, tmp_path / "tiny.gguf"), tmp_path / "cache"
    ).config()
    assert config == as_in_gguf(read_config(checkpoint))
    assert config.rope_scaling == LinearScaling(factor=8.0)
    assert config.windows == {"mistral": (24, 24), "gemma3_text": (24, 0)}.get(family, ())


@pytest.mark.parametrize(("layers", "size"), [(2, 32), (62, 16)])
def test_scores_of_the_largest_gemma_3_are_divided_by_a_share_of_its_width(
    tmp_path: Path, layers: int, size: int
) -> None:
    checkpoint = write_tiny(tmp_path / "hf", "gemma3_text", layers=layers, head_dim=32)
    path = write_tiny_gguf(checkpoint, tmp_path / "tiny.gguf")
    assert prepared(path, tmp_path / "cache").config().query_size == size


def test_long_rope_comes_along(tmp_path: Path) -> None:
    checkpoint = write_tiny(tmp_path / "hf", "phi3", **LONG_ROPE)
    model = prepared(write_tiny_gguf(checkpoint, tmp_path / "tiny.gguf"), tmp_path / "cache")
    scaling, expected = model.config().rope_scaling, read_config(checkpoint).rope_scaling
    assert isinstance(scaling, LongScaling)
    assert isinstance(expected, LongScaling)
    assert scaling.original_context == expected.original_context == 64
    for name in ("short", "long", "amplitude"):
        assert np.array_equal(
            np.float32(getattr(scaling, name)), np.float32(getattr(expected, name))
        )


def test_quantised_blocks_are_dequantised_row_by_row(tmp_path: Path) -> None:
    checkpoint = write_tiny(tmp_path / "hf")
    path = write_tiny_gguf(checkpoint, tmp_path / "tiny.gguf", gguf.GGMLQuantizationType.Q8_0)
    _, tensors = load(prepared(path, tmp_path / "cache"))
    kind = gguf.GGMLQuantizationType.Q8_0
    for name, value in load_file(checkpoint / "model.safetensors").items():
        blocks = gguf.dequantize(gguf.quantize(value, kind), kind) if value.ndim > 1 else value
        np.testing.assert_array_equal(tensors[name], blocks, err_msg=name)


@pytest.mark.parametrize(("sentencepiece", "first"), [(False, 260), (True, 1)])
def test_a_text_begins_as_the_gguf_file_says(
    tmp_path: Path, sentencepiece: bool, first: int
) -> None:
    checkpoint = write_tiny(tmp_path / "hf")
    path = write_tiny_gguf(checkpoint, tmp_path / "tiny.gguf", sentencepiece=sentencepiece)
    assert tokenizer_of(GgufModel(path))("ab c")["input_ids"][:1] == [first]


def test_the_tokenizer_in_a_gguf_file_comes_along(tmp_path: Path) -> None:
    path = write_tiny_gguf(write_tiny(tmp_path / "hf"), tmp_path / "tiny.gguf")
    model = prepared(path, tmp_path / "cache")
    tokenizer = transformers.AutoTokenizer.from_pretrained(model.tokenizer)
    assert tokenizer("cab<|end|>")["input_ids"] == [ord("c"), 260, 256]
    chat = [{"role": "user", "content": "hi"}]
    laid_out = tokenizer.apply_chat_template(chat, tokenize=False, add_generation_prompt=True)
    assert laid_out == "<|user|>hi<|end|><|assistant|>"


@pytest.mark.parametrize("factor", [8.0, 32.0])
def test_llama_3_scaling_is_recovered_from_its_frequencies(tmp_path: Path, factor: float) -> None:
    checkpoint = write_tiny(tmp_path / "hf", hidden=256, rope_theta=5e5)
    rope = LLAMA3 | {"rope_theta": 5e5, "factor": factor}
    divisors = llama3_divisors(rope, 64)
    path = write_tiny_gguf(
        checkpoint, tmp_path / "a.gguf", rope_freqs__weight=divisors.astype(np.float32)
    )
    found = prepared(path, tmp_path / "cache").config().rope_scaling
    assert isinstance(found, Llama3Scaling)
    assert found.factor == factor
    odd = write_tiny_gguf(
        checkpoint, tmp_path / "b.gguf", rope_freqs__weight=np.linspace(1, 9, 32, dtype=np.float32)
    )
    with pytest.raises(ModelError, match="is not the scaling of Llama 3"):
        prepared(odd, tmp_path / "cache")


def test_experts_and_unknown_architectures_are_refused_by_name(tmp_path: Path) -> None:
    checkpoint = write_tiny(tmp_path / "hf")
    moe = write_tiny_gguf(checkpoint, tmp_path / "moe.gguf", experts=8)
    with pytest.raises(
        ModelError, match=r"'llama' with 8 experts .* dense llama, qwen2, qwen3, gemma3, phi3"
    ):
        prepared(moe, tmp_path / "cache")
    writer = gguf.GGUFWriter(tmp_path / "mamba.gguf", "mamba")
    writer.add_block_count(1)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    with pytest.raises(ModelError, match="'mamba' is not supported"):
        prepared(tmp_path / "mamba.gguf", tmp_path / "cache")


@pytest.mark.parametrize("size", [0, 3, 100, 2000])
def test_a_gguf_file_cut_short_is_refused(tmp_path: Path, size: int) -> None:
    path = write_tiny_gguf(write_tiny(tmp_path / "hf"), tmp_path / "tiny.gguf")
    path.write_bytes(path.read_bytes()[:size])
    with pytest.raises(ModelError, match=f"GGUF file: its {size} bytes end too early"):
        prepared(path, tmp_path / "cache")


def test_nothing_is_done_twice(tmp_path: Path) -> None:
    path = write_tiny_gguf(write_tiny(tmp_path / "hf"), tmp_path / "tiny.gguf")
    settings = ModelSettings(uri=f"file://{path}")
    first, second = Steps(), Steps()
    model = prepare(settings, tmp_path / "cache", first)
    written = (model.directory / "config.json").stat()
    assert prepare(settings, tmp_path / "cache", second) == model
    assert first.stages == STAGES
    assert second.stages == ["hash"]
    found = (model.directory / "config.json").stat()
    assert (found.st_ino, found.st_mtime_ns) == (written.st_ino, written.st_mtime_ns)


@pytest.mark.parametrize("name", ["config.json", "tokenizer.json", "manifest.json"])
def test_a_damaged_cache_is_made_again(tmp_path: Path, name: str) -> None:
    path = write_tiny_gguf(write_tiny(tmp_path / "hf"), tmp_path / "tiny.gguf")
    model = prepared(path, tmp_path / "cache")
    whole = (model.directory / name).read_bytes()
    (model.directory / name).write_bytes(whole[:-1])
    assert prepared(path, tmp_path / "cache") == model
    assert (model.directory / name).read_bytes() == whole
    (model.directory / name).unlink()
    prepared(path, tmp_path / "cache")
    assert (model.directory / name).read_bytes() == whole


def test_what_a_killed_preparer_left_is_not_used(tmp_path: Path) -> None:
    path = write_tiny_gguf(write_tiny(tmp_path / "hf"), tmp_path / "tiny.gguf")
    model = prepared(path, tmp_path / "cache")
    half = model.directory.with_name(f".{model.directory.name}-fresh")
    model.directory.rename(half)
    (half / "config.json").write_bytes(b"half")
    assert prepared(path, tmp_path / "cache") == model
    load(model)
    assert not half.exists()
    assert {one.name for one in model.cache.iterdir() if one.is_dir()} == {"checkpoint"}


def test_beside_a_gguf_file_only_config_and_tokenizer_are_kept(tmp_path: Path) -> None:
    path = write_tiny_gguf(write_tiny(tmp_path / "hf", hidden=256), tmp_path / "tiny.gguf")
    model = prepared(path, tmp_path / "cache")
    files = [file for file in model.cache.rglob("*") if file.is_file() and not file.is_symlink()]
    assert sum(file.stat().st_size for file in files) < path.stat().st_size / 4
    moved = path.rename(tmp_path / "moved.gguf")
    with pytest.raises(ModelError, match=f"{path} is there no more"):
        load(model)
    again = prepared(moved, tmp_path / "cache")
    assert again.revision == model.revision
    load(again)


def test_two_processes_prepare_one_model_once(tmp_path: Path) -> None:
    path = write_tiny_gguf(write_tiny(tmp_path / "hf"), tmp_path / "tiny.gguf")
    settings = WorkerSettings(
        role=Role.TARGET,
        name="tiny",
        model=ModelSettings(uri=f"file://{path}"),
        cache=str(tmp_path / "cache"),
    )
    (tmp_path / "settings.json").write_text(settings.to_json())
    settings_file = str(tmp_path / "settings.json")
    command = [sys.executable, "-m", "outrider.worker", "prepare", "--settings", settings_file]
    both = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    outputs = [process.communicate()[0].splitlines() for process in both]
    assert [process.returncode for process in both] == [0, 0]
    last = [json.loads(lines[-1]) for lines in outputs]
    assert last[0] == last[1]
    makers = [lines for lines in outputs if any('"tokenizer", "done": 1' in line for line in lines)]
    assert len(makers) == 1
    load(PreparedModel.from_fields(last[0]["prepared"]))


def test_the_revision_names_weights_and_config(tmp_path: Path) -> None:
    checkpoint, cache = write_tiny(tmp_path / "hf"), tmp_path / "cache"
    first = prepared(checkpoint, cache)
    assert prepared(checkpoint, cache).revision == first.revision
    assert first.directory == checkpoint
    assert first.cache.is_relative_to(cache)
    config = checkpoint / "config.json"
    config.write_text(config.read_text().replace("1024", "512"))
    second = prepared(checkpoint, cache)
    tensors = load_file(checkpoint / "model.safetensors")
    tensors["model.norm.weight"][0] += 1
    save_file(tensors, checkpoint / "model.safetensors", metadata={"format": "pt"})
    third = prepared(checkpoint, cache)
    assert len({first.revision, second.revision, third.revision}) == 3
    assert len({first.cache, second.cache, third.cache}) == 3


def borrowing_draft(folder: Path, gguf_sha256: str | None) -> Path:
    write_tiny(folder, seed=3)
    tensors = load_file(folder / "model.safetensors")
    del tensors["model.embed_tokens.weight"]
    save_file(tensors, folder / "model.safetensors")
    config = json.loads((folder / "config.json").read_text())
    config["target"] = {"gguf_sha256": gguf_sha256}
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "tokenizer.json").unlink()
    return folder


def test_a_draft_takes_embedding_and_tokenizer_from_its_target(tmp_path: Path) -> None:
    target = write_tiny(tmp_path / "target")
    draft = borrowing_draft(tmp_path / "draft", None)
    model = prepared(draft, tmp_path / "cache", target)
    assert (model.directory, model.embeddings, model.tokenizer) == (draft, target, target)
    assert PreparedModel.from_fields(json.loads(json.dumps(model.to_fields()))) == model
    _, tensors = load(model)
    name = "model.embed_tokens.weight"
    assert np.array_equal(tensors[name], load_file(target / "model.safetensors")[name])
    other = write_tiny(tmp_path / "other", seed=9)
    assert prepared(draft, tmp_path / "cache", other).revision != model.revision
    with pytest.raises(ModelError, match="holds no tokenizer"):
        prepared(draft, tmp_path / "cache")


def test_a_draft_refuses_another_file_than_the_one_it_was_made_for(tmp_path: Path) -> None:
    checkpoint = write_tiny(tmp_path / "hf")
    path = write_tiny_gguf(checkpoint, tmp_path / "tiny.gguf")
    draft = borrowing_draft(tmp_path / "draft", "f" * 64)
    with pytest.raises(ModelError, match=f"sha256 {'f' * 64}, but embeddings_from"):
        prepared(draft, tmp_path / "cache", path)
    with pytest.raises(ModelError, match="not a GGUF file"):
        prepared(draft, tmp_path / "cache", checkpoint)


@pytest.mark.parametrize("text", ["{", '{"role": "target"}', None])
def test_the_command_reports_errors_as_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str | None
) -> None:
    path = tmp_path / "settings.json"
    if text is not None:
        path.write_text(text)
    assert main(str(path)) == 1
    [line] = capsys.readouterr().out.splitlines()
    assert list(json.loads(line)) == ["error"]


def test_more_stages_than_layers_are_refused_before_the_worker_starts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write_tiny(tmp_path / "hf", layers=2)
    settings = WorkerSettings(
        role=Role.TARGET,
        name="tiny",
        model=ModelSettings(uri=f"file://{path}"),
        cache=str(tmp_path / "cache"),
        pipeline=PipelineSettings(stages=3),
    )
    (tmp_path / "settings.json").write_text(settings.to_json())
    assert main(str(tmp_path / "settings.json")) == 1
    *_, last = capsys.readouterr().out.splitlines()
    problem = "settings.pipeline.stages: 3 is not allowed; the model has 2 layers"
    assert json.loads(last) == {"error": problem}
    with pytest.raises(SettingsError, match=problem):
        prepare_models(settings)


def test_the_command_reports_progress_and_result(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write_tiny_gguf(write_tiny(tmp_path / "hf"), tmp_path / "tiny.gguf")
    settings = WorkerSettings(
        role=Role.TARGET,
        name="tiny",
        model=ModelSettings(uri=f"file://{path}"),
        cache=str(tmp_path / "cache"),
    )
    (tmp_path / "settings.json").write_text(settings.to_json())
    assert main(str(tmp_path / "settings.json")) == 0
    *progress, last = map(json.loads, capsys.readouterr().out.splitlines())
    assert list(dict.fromkeys(line["stage"] for line in progress)) == STAGES
    assert progress[-1] == {"stage": "tokenizer", "done": 1, "total": 1}
    assert last["colocated"] is None
    assert PreparedModel.from_fields(last["prepared"]) == prepared(path, tmp_path / "cache")
