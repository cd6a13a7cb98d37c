"""Tiny models that say what a test has written: each of their tokens has one follower."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from safetensors.numpy import load_file
from tokenizers import AddedToken, Tokenizer

from tests.tiny_models import SPECIALS, save, write_tiny

BYTES = 256
HEADS = 4


def write_chain(
    directory: Path, says: Mapping[str, Sequence[str]], template: str, special: Sequence[str] = ()
) -> Path:
    """Write a model that answers with some pieces of text, each a token, behind a control token.

    `says` has them by that token, with which `template` ends the prompt. No piece comes twice;
    those in `special` are control tokens as well. Returns `directory`.
    """
    pieces = dict.fromkeys((*says, *(piece for said in says.values() for piece in said)))
    size = -(-(BYTES + len(SPECIALS) + len(pieces)) // (8 * HEADS)) * 8 * HEADS
    write_tiny(
        directory, vocab=size, hidden=size, kv_heads=HEADS, layers=1, tie_word_embeddings=False
    )
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
    for begin, said in says.items():
        ids = [tokenizer.token_to_id(piece) for piece in (begin, *said, SPECIALS[0])]
        tensors["lm_head.weight"][ids[1:], ids[:-1]] = 1
    save(tensors, directory)
    return directory
