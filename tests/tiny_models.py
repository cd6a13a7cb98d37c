"""Tiny random checkpoints of each family, written by transformers' own classes.

Knows nothing of Outrider's loader: what it writes is what any Hugging Face tool would write.
"""

import json
from pathlib import Path
from typing import Any

import torch
import transformers
from safetensors.torch import load_file, save_file
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

FAMILIES = ("llama", "mistral", "qwen2", "qwen3")
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
}
_MODELS = {
    "llama": transformers.LlamaForCausalLM,
    "mistral": transformers.MistralForCausalLM,
    "qwen2": transformers.Qwen2ForCausalLM,
    "qwen3": transformers.Qwen3ForCausalLM,
}


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
    settings = _CONFIGS[family](**(fields | config))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = _MODELS[family](settings).float()
        _scatter(model)
    model.save_pretrained(directory)
    write_tokenizer(directory)
    return directory


def write_slow_target(
    directory: Path, idle_layers: int = 48, layers: int = 2, hidden: int = 256, **config: Any
) -> Path:
    """Writes a target that costs `layers + idle_layers` and thinks in its first `layers` only.

    The idle layers' projections back into the residual stream are zero, so a draft made of the
    first layers agrees often while it runs in a fraction of the time; returns `directory`.
    """
    write_tiny(directory, layers=layers + idle_layers, hidden=hidden, **config)
    file = directory / "model.safetensors"
    weights = load_file(file)
    for name, value in weights.items():
        idle = name.startswith("model.layers.") and int(name.split(".")[2]) >= layers
        if idle and name.endswith(("o_proj.weight", "down_proj.weight")):
            value.zero_()
    save_file(weights, file, metadata={"format": "pt"})
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
    generator = torch.Generator().manual_seed(seed)
    noisy = {
        name: value + noise * value.std() * torch.randn(value.shape, generator=generator)
        for name, value in sorted(load_file(target / "model.safetensors").items())
        if not name.startswith("model.layers.") or int(name.split(".")[2]) < kept
    }
    save_file(noisy, directory / "model.safetensors", metadata={"format": "pt"})
    write_tokenizer(directory)
    return directory


def write_tokenizer(directory: Path) -> None:
    """Writes a tokenizer of 256 byte tokens and `SPECIALS`, with a chat template."""
    # The byte alphabet in byte order: ids 0-255 are the bytes themselves.
    vocab = {character: byte for byte, character in enumerate(byte_characters())}
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(text, special=True) for text in SPECIALS])
    fast = transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, eos_token=SPECIALS[0], pad_token=SPECIALS[0]
    )
    fast.chat_template = TEMPLATE
    fast.save_pretrained(directory)


def _scatter(model: torch.nn.Module) -> None:
    """Moves norms and biases off 1 and 0, so that a loader that forgets them is found out."""
    with torch.no_grad():
        for name, value in model.named_parameters():
            if "norm" in name or name.endswith(".bias"):
                value.add_(0.1 * torch.randn(value.shape))


def byte_characters() -> list[str]:
    """GPT-2's printable stand-in of each byte, in byte order."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    moved = [byte for byte in range(256) if byte not in printable]
    return [chr(byte) if byte in printable else chr(256 + moved.index(byte)) for byte in range(256)]
