"""Vocabulary of a model in llguidance's form, and llguidance's errors for users.

Imports no numba, unlike `grammar`: the server, which checks response formats, imports it too.
"""

import json
from collections.abc import Callable
from typing import TYPE_CHECKING

from outrider.worker.checkpoints import vocabulary
from outrider.worker.checkpoints.prepared import PreparedModel
from outrider.worker.errors import ModelError

if TYPE_CHECKING:
    from llguidance import LLMatcher, LLTokenizer

SHOWN_REASON = 300
"""Characters of llguidance's message."""


class GrammarTokenizer:
    """Tokenizer interface of llguidance: bytes by id, and text cut into tokens."""

    is_tokenizer_wrapper = True
    bos_token_id = None

    def __init__(self, tokens: list[bytes], special_ids: list[int], end_ids: tuple[int, ...]):
        self.tokens = tokens
        self.special_token_ids = special_ids
        self.eos_token_id = end_ids[0]
        self.longest_first: Callable[[str], list[int]] = lambda text: []

    def __call__(self, text: str) -> list[int]:
        """Return tokens whose bytes are the text's, in which a grammar offers forced text."""
        return self.longest_first(text)


def tokenizer_of(model: PreparedModel, size: int, end_ids: tuple[int, ...]) -> "LLTokenizer":
    """Build llguidance's view of the ids below `size`; takes about 0.3 s for 49,152 of them.

    Needs at least one id of `end_ids`; raises `ModelError`.
    """
    from llguidance import LLTokenizer

    path = model.tokenizer / "tokenizer.json"
    try:
        added = json.loads(path.read_bytes()).get("added_tokens", [])
    except (OSError, ValueError) as error:
        raise ModelError(f"{path}: {error}") from error
    special = sorted({t["id"] for t in added if t.get("special") and t["id"] < size} | {*end_ids})
    words = GrammarTokenizer(vocabulary.read(model)[:size], special, end_ids)
    tokenizer = LLTokenizer(words, n_vocab=size, eos_token=list(end_ids))  # type: ignore[arg-type]
    words.longest_first = tokenizer.greedy_tokenize
    return tokenizer


def error_of(state: "LLMatcher") -> str:
    """Return llguidance's message on a failed state, without the dump that follows it."""
    return state.get_error().partition("<state>")[0][:SHOWN_REASON]
