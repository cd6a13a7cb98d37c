"""Tiny random checkpoints of each family, as transformers' own classes would write them.

Knows nothing of Outrider's loader: what it writes is what any Hugging Face tool would write. Needs
no torch, as transformers' configs and tokenizers do not; a test compares with its models.
"""

import json
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import transformers
from huggingface_hub import split_state_dict_into_shards_factory
from numpy.typing import NDArray
from safetensors.numpy import load_file, save_file
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

FAMILIES = ("llama", "mistral", "qwen2", "qwen3", "gemma3_text", "phi3")
SPECIALS = ("<|end|>", "<|user|>", "<|assistant|>", "<|system|>")
END_ID = 256
TEMPLATE = (
    "{% for m in messages %}"
    "{% if m['role'] not in ['user', 'assistant', 'system'] %}"
    "{{ raise_exception('unknown role ' + m['role']) }}{% endif %}"
    "{{ '<|' + m['role'] + '|>' + m['content'] + '<|end|>' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}"
)
_CONFIGS = {
    "llama": transformers.LlamaConfig,
    "mistral": transformers.MistralConfig,
    "qwen2": transformers.Qwen2Config,
    "qwen3": transformers.Qwen3Config,
    "gemma3_text": transformers.Gemma3TextConfig,
    "phi3": transformers.Phi3Config,
}
_FIELDS: dict[str, dict[str, Any]] = {
    "gemma3_text": {
        "sliding_window": 24,
        "sliding_window_pattern": 2,
        "query_pre_attn_scalar": 24,
    },
    "phi3": {
        "rope_parameters": {
            "rope_type": "default",
            "rope_theta": 10000.0,
            "partial_rotary_factor": 0.5,
        },
    },
}
"""What families have besides: small, and no default."""
LONG_ROPE: dict[str, Any] = {
    "original_max_position_embeddings": 64,
    "rope_parameters": {
        "rope_type": "longrope", "rope_theta": 10000.0, "partial_rotary_factor": 0.5,
        "short_factor": [1.0, 1.1, 1.2, 1.5], "long_factor": [1.0, 2.5, 7.0, 16.0],
    },
}  # fmt: skip
"""Phi-3 whose contexts beyond 64 tokens have other rotary factors."""
Tensors = dict[str, NDArray[np.float32]]


def write_tiny(
    directory: Path,
    family: str = "llama",
    seed: int = 0,
    vocab: int = 512,
    layers: int = 2,
    hidden: int = 64,
    heads: int = 4,
    kv_heads: int = 2,
    **config: Any,
) -> Path:
    """Writes config, float32 safetensors and a byte-level tokenizer into `directory`; returns it.

    `config` overrides fields of transformers' config, such as `tie_word_embeddings` or
    `sliding_window`. Token ids 0-255 are bytes, 256 ends an answer, and rows of the embedding past
    `256 + len(SPECIALS)` are padding.
    """
    fields: dict[str, Any] = {
        "vocab_size": vocab,
        "num_hidden_layers": layers,
        "hidden_size": hidden,
        "intermediate_size": 2 * hidden,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "head_dim": hidden // heads,
        "max_position_embeddings": 1024,
        "bos_token_id": None,
        "eos_token_id": END_ID,
        "pad_token_id": END_ID,
        "tie_word_embeddings": True,
        "initializer_range": 0.2,
    }
    kind = _CONFIGS[family]
    settings = kind(
        architectures=[
            kind.__name__.replace("TextConfig", "Config").replace("Config", "ForCausalLM")
        ],
        dtype="float32",
        **(fields | _FIELDS.get(family, {}) | config),
    )
    settings.save_pretrained(directory)
    transformers.GenerationConfig.from_model_config(settings).save_pretrained(directory)
    save(_tensors(settings, seed), directory)
    write_tokenizer(directory)
    return directory


def _tensors(config: Any, seed: int) -> Tensors:
    """Return a model's weights by transformers' names.

    Norms and biases are off 1 and 0, so that a loader that forgets them is found out.
    """
    rng = np.random.default_rng(seed)
    width, head = config.hidden_size, config.head_dim
    queries, keys = config.num_attention_heads * head, config.num_key_value_heads * head
    tensors: Tensors = {}
    gemma = config.model_type == "gemma3_text"

    def random(name: str, *shape: int, mean: float = 0.0, deviation: float) -> None:
        values = rng.standard_normal(shape, np.float32)
        tensors[name] = np.float32(mean) + np.float32(deviation) * values

    def matrix(name: str, rows: int, columns: int) -> None:
        random(f"{name}.weight", rows, columns, deviation=config.initializer_range)

    def norm(name: str, size: int) -> None:
        random(f"{name}.weight", size, mean=0.0 if gemma else 1.0, deviation=0.1)
        if gemma:  # as bfloat16 has them, so that a GGUF file's 1 + weight is exact
            tensors[f"{name}.weight"] = np.rint(tensors[f"{name}.weight"] * 256) / np.float32(256)

    matrix("model.embed_tokens", config.vocab_size, width)
    tensors["model.embed_tokens.weight"][config.pad_token_id] = 0  # as torch's embedding does
    for layer in range(config.num_hidden_layers):
        of = f"model.layers.{layer}"
        for part, size in (("q", queries), ("k", keys), ("v", keys)):
            matrix(f"{of}.self_attn.{part}_proj", size, width)
            if config.model_type == "qwen2":
                random(f"{of}.self_attn.{part}_proj.bias", size, deviation=0.1)
            elif (config.model_type == "qwen3" or gemma) and part != "v":
                norm(f"{of}.self_attn.{part}_norm", head)
        matrix(f"{of}.self_attn.o_proj", width, queries)
        matrix(f"{of}.mlp.gate_proj", config.intermediate_size, width)
        matrix(f"{of}.mlp.up_proj", config.intermediate_size, width)
        matrix(f"{of}.mlp.down_proj", width, config.intermediate_size)
        norm(f"{of}.input_layernorm", width)
        norm(f"{of}.post_attention_layernorm", width)
        if gemma:
            norm(f"{of}.pre_feedforward_layernorm", width)
            norm(f"{of}.post_feedforward_layernorm", width)
    norm("model.norm", width)
    if not config.tie_word_embeddings:
        matrix("lm_head", config.vocab_size, width)
    return fused(tensors) if config.model_type == "phi3" else tensors


def fused(tensors: Tensors) -> Tensors:
    """Phi-3's form of a model's weights."""
    found: dict[str, list[NDArray[np.float32]]] = {}
    for name, value in tensors.items():
        name = re.sub(r"\.[qkv]_proj\.", ".qkv_proj.", name)
        name = re.sub(r"\.(gate|up)_proj\.", ".gate_up_proj.", name)
        found.setdefault(name, []).append(value)
    return {name: np.concatenate(parts) for name, parts in found.items()}


def save(tensors: Tensors, directory: Path) -> None:
    """Write a checkpoint's only file of weights, as transformers marks it."""
    save_file(tensors, directory / "model.safetensors", metadata={"format": "pt"})


def write_shards(whole: Path, directory: Path, limit: int = 100_000) -> Path:
    """Write a checkpoint's weights as several files of at most `limit` bytes; return `directory`.

    Larger tensors have a file of their own. The names and the index are those of transformers.
    """
    tensors = load_file(whole / "model.safetensors")
    parts = split_state_dict_into_shards_factory(
        tensors,
        get_storage_size=lambda tensor: tensor.nbytes,
        max_shard_size=limit,
        filename_pattern="model{suffix}.safetensors",
    )
    directory.mkdir()
    shutil.copy(whole / "config.json", directory)
    for file, names in parts.filename_to_tensors.items():
        save_file({name: tensors[name] for name in names}, directory / file)
    index = {"metadata": parts.metadata, "weight_map": parts.tensor_to_filename}
    (directory / "model.safetensors.index.json").write_text(json.dumps(index))
    return directory


def write_slow_target(
    directory: Path, idle_layers: int = 48, layers: int = 2, hidden: int = 256, **config: Any
) -> Path:
    """Writes a target that costs `layers + idle_layers` and thinks in its first `layers` only.

    The idle layers' projections back into the residual stream are zero, so a draft made of the
    first layers agrees often while it runs in a fraction of the time; returns `directory`.
    """
    write_tiny(directory, layers=layers + idle_layers, hidden=hidden, **config)
    weights = load_file(directory / "model.safetensors")
    for name, value in weights.items():
        idle = name.startswith("model.layers.") and int(name.split(".")[2]) >= layers
        if idle and name.endswith(("o_proj.weight", "down_proj.weight")):
            value[:] = 0
    save(weights, directory)
    return directory


def write_draft_of(
    target: Path, directory: Path, noise: float = 0.05, seed: int = 1, layers: int | None = None
) -> Path:
    """Writes a draft that often agrees: the target's weights plus noise; returns `directory`.

    `noise` is relative to each tensor's own standard deviation. `layers` keeps only the first.
    """
    directory.mkdir(parents=True, exist_ok=True)
    settings = json.loads((target / "config.json").read_text())
    kept = settings["num_hidden_layers"] if layers is None else layers
    settings["num_hidden_layers"] = kept
    if "layer_types" in settings:
        settings["layer_types"] = settings["layer_types"][:kept]
    (directory / "config.json").write_text(json.dumps(settings, indent=2))
    rng = np.random.default_rng(seed)
    noisy = {
        name: value + np.float32(noise * value.std()) * rng.standard_normal(value.shape, np.float32)
        for name, value in sorted(load_file(target / "model.safetensors").items())
        if not name.startswith("model.layers.") or int(name.split(".")[2]) < kept
    }
    save(noisy, directory)
    write_tokenizer(directory)
    return directory


def write_tokenizer(directory: Path, **config: Any) -> None:
    """Writes a tokenizer of 256 byte tokens and `SPECIALS`, with a chat template; `config` are more
    fields of tokenizer_config.json."""
    # The byte alphabet in byte order: ids 0-255 are the bytes themselves.
    vocab = {character: byte for byte, character in enumerate(byte_characters())}
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(text, special=True) for text in SPECIALS])
    fast = transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, eos_token=SPECIALS[0], pad_token=SPECIALS[0], **config
    )
    fast.chat_template = TEMPLATE
    fast.save_pretrained(directory)


def reverse_bytes(directory: Path) -> Path:
    """Gives a tiny model another tokenizer: ids of bytes, and their rows, are in reverse."""
    path, weights = directory / "tokenizer.json", directory / "model.safetensors"
    tokenizer = json.loads(path.read_text())
    vocab = tokenizer["model"]["vocab"]
    tokenizer["model"]["vocab"] = {text: 255 - number for text, number in vocab.items()}
    path.write_text(json.dumps(tokenizer))
    tensors = load_file(weights)
    for name in {"model.embed_tokens.weight", "lm_head.weight"} & tensors.keys():
        tensors[name][:256] = tensors[name][255::-1].copy()
    save_file(tensors, weights, {"format": "pt"})
    return directory


def make_unreadable(directory: Path) -> Path:
    """Gives a tiny model a tokenizer of a kind whose tokens' bytes are not known."""
    path = directory / "tokenizer.json"
    decoder = {"type": "WordPiece", "prefix": "##", "cleanup": True}
    path.write_text(json.dumps(json.loads(path.read_text()) | {"decoder": decoder}))
    return directory


def byte_characters() -> list[str]:
    """GPT-2's printable stand-in of each byte, in byte order."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    moved = [byte for byte in range(256) if byte not in printable]
    return [chr(byte) if byte in printable else chr(256 + moved.index(byte)) for byte in range(256)]
