"""Tiny models that say what a test has written: each of their tokens has one follower."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
from safetensors.numpy import load_file
from tokenizers import AddedToken, Tokenizer

from tests.tiny_models import END_ID, SPECIALS, save, write_tiny

BYTES = 256
HEADS = 4


def write_chain(
    directory: Path,
    says: Mapping[str, Sequence[str]],
    template: str,
    special: Sequence[str] = (),
    instead: Mapping[str, Sequence[str]] = MappingProxyType({}),
    **config: Any,
) -> Path:
    """Write a model that answers with some pieces of text, each a token, behind a control token.

    `says` has them by that token, with which `template` ends the prompt. No piece comes twice;
    those in `special` are control tokens as well. `instead` has whole answers, by that token too,
    of which the first is said that a grammar allows, where it forbids the usual one; one that is a
    piece of a usual answer goes on as that does. `config` overrides fields of transformers'
    config. Returns `directory`.
    """
    answers = (*says.values(), *instead.values())
    pieces = dict.fromkeys((*says, *(piece for answer in answers for piece in answer)))
    size = -(-(BYTES + len(SPECIALS) + len(pieces)) // (8 * HEADS)) * 8 * HEADS
    shape = {"vocab": size, "hidden": size, "kv_heads": HEADS, "layers": 1}
    write_tiny(directory, **shape, tie_word_embeddings=False, **config)
    (directory / "chat_template.jinja").write_text(template)
    file, weights = directory / "tokenizer.json", directory / "model.safetensors"
    tokenizer = Tokenizer.from_file(str(file))
    for piece in pieces:
        control = piece in (*says, *special)
        tokenizer.add_tokens([AddedToken(piece, special=control, normalized=False)])
    tokenizer.save(str(file))
    tensors = load_file(weights)
    for name, value in tensors.items():
        value[:] = "norm" in name
    tensors["model.embed_tokens.weight"][:] = np.eye(size, dtype=np.float32)
    head = tensors["lm_head.weight"]
    for begin, said in says.items():
        ids = [tokenizer.token_to_id(piece) for piece in (begin, *said, SPECIALS[0])]
        head[ids[1:], ids[:-1]] = 1
    for begin, whole in instead.items():
        ids = [tokenizer.token_to_id(piece) for piece in whole]
        head[END_ID, [at for at in ids if not head[:, at].any()]] = 1
        head[ids, tokenizer.token_to_id(begin)] = 0.5 ** np.arange(1, 1 + len(ids))
    save(tensors, directory)
    return directory
