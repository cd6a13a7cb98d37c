"""A model's vocabulary as llguidance wants it, and llguidance's errors as users want them.

Needs nothing that computes: the server, which checks what a request asks for, imports it too.
Leaves grammars to `grammar`.
"""

import json
from collections.abc import Callable

from llguidance import LLMatcher, LLTokenizer

from outrider.worker.errors import ModelError
from outrider.worker.model import vocabulary
from outrider.worker.model.prepared import PreparedModel

SHOWN_REASON = 300
"""Characters of what llguidance says."""


class GrammarTokenizer:
    """A vocabulary as llguidance wants it: bytes by id, and text cut into tokens."""

    is_tokenizer_wrapper = True
    bos_token_id = None

    def __init__(self, tokens: list[bytes], special_ids: list[int], end_ids: tuple[int, ...]):
        self.tokens = tokens
        self.special_token_ids = special_ids
        self.eos_token_id = end_ids[0]
        self.longest_first: Callable[[str], list[int]] = lambda text: []

    def __call__(self, text: str) -> list[int]:
        """Tokens whose bytes are the text's: what a grammar forces is offered in these."""
        return self.longest_first(text)


def tokenizer_of(model: PreparedModel, size: int, end_ids: tuple[int, ...]) -> LLTokenizer:
    """llguidance's view of the ids below `size`; takes about 0.3 s for 49,152 of them.

    Needs at least one id of `end_ids`; raises `ModelError`.
    """
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


def error_of(state: LLMatcher) -> str:
    """What llguidance says of a state that has failed, without the dump of it that follows."""
    return state.get_error().partition("<state>")[0][:SHOWN_REASON]
