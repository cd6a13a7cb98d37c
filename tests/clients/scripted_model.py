"""A model that says what a test wrote for it: a Llama whose next token follows from the last alone.

Which text it begins with is its chat template's choice, so that an answer depends on the messages
and tools of a request. Texts are pieces, each a token of its own. A piece has followers in order:
where a grammar forbids the first, the next is said.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import transformers
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

from tests.tiny_models import Tensors, byte_characters, save

END = "<|end|>"
SPECIALS = (END, "<|user|>", "<|assistant|>", "<|system|>", "<|tool|>")
BYTES = 256


def write_scripted(directory: Path, followers: Mapping[str, Sequence[str]], template: str) -> Path:
    """Writes the model; `followers` of a piece, best first; a marker `<|...|>` begins a text.

    A piece without followers ends the answer. Returns `directory`.
    """
    pieces = dict.fromkeys([*followers, *(one for after in followers.values() for one in after)])
    markers = [one for one in pieces if one.startswith("<|") and one != END]
    said = [one for one in pieces if one not in markers and one != END]
    ids = {text: BYTES + n for n, text in enumerate((*SPECIALS, *markers, *said))}
    config = transformers.LlamaConfig(
        architectures=["LlamaForCausalLM"],
        dtype="float32",
        vocab_size=BYTES + len(ids),
        hidden_size=64 * -(-(BYTES + len(ids)) // 64),
        intermediate_size=64,
        num_hidden_layers=1,
        num_attention_heads=4,
        num_key_value_heads=4,
        max_position_embeddings=32768,
        bos_token_id=None,
        eos_token_id=ids[END],
        pad_token_id=ids[END],
        tie_word_embeddings=False,
    )
    config.save_pretrained(directory)
    after = {ids[one]: [ids[each] for each in followers.get(one) or [END]] for one in pieces}
    save(_tensors(config, after), directory)
    _write_tokenizer(directory, (*SPECIALS, *markers), said, template)
    return directory


def _tensors(config: transformers.LlamaConfig, followers: Mapping[int, Sequence[int]]) -> Tensors:
    """Return weights with which a token's logits are those of its followers, and 0 elsewhere."""
    vocab, width, inner = config.vocab_size, config.hidden_size, config.intermediate_size
    head = np.zeros((vocab, width), np.float32)
    for token, after in followers.items():
        for rank, follower in enumerate(after):
            head[follower, token] = 1.0 - rank / 4
    layer, square = "model.layers.0", np.zeros((width, width), np.float32)
    return {
        "model.embed_tokens.weight": np.eye(vocab, width, dtype=np.float32),
        "lm_head.weight": head,
        "model.norm.weight": np.ones(width, np.float32),
        f"{layer}.input_layernorm.weight": np.ones(width, np.float32),
        f"{layer}.post_attention_layernorm.weight": np.ones(width, np.float32),
        **{f"{layer}.self_attn.{part}_proj.weight": square for part in "qkvo"},
        f"{layer}.mlp.gate_proj.weight": np.zeros((inner, width), np.float32),
        f"{layer}.mlp.up_proj.weight": np.zeros((inner, width), np.float32),
        f"{layer}.mlp.down_proj.weight": np.zeros((width, inner), np.float32),
    }


def _write_tokenizer(
    directory: Path, specials: Sequence[str], said: Sequence[str], template: str
) -> None:
    vocab = {character: byte for byte, character in enumerate(byte_characters())}
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(text, special=True) for text in specials])
    tokenizer.add_tokens([AddedToken(text, special=False) for text in said])
    fast = transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, eos_token=END, pad_token=END
    )
    fast.chat_template = template
    fast.save_pretrained(directory)
    config = directory / "generation_config.json"
    config.write_text(json.dumps({"eos_token_id": BYTES + specials.index(END), "do_sample": False}))
