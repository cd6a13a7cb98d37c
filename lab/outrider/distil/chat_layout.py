"""Tokens of a chat around what the user asks, as the target's chat template lays them out."""

import hashlib
import json
from dataclasses import dataclass
from typing import Self

from outrider.contract.inference import Message
from outrider.distil.errors import BadRecipe
from outrider.worker.api.text import Text
from outrider.worker.model.config import ModelConfig


@dataclass(frozen=True, slots=True)
class ChatLayout:
    """How a chat of one model looks."""

    text: Text
    ends: frozenset[int]
    """Tokens that end a turn."""
    before: tuple[int, ...]
    """Tokens before the user's first."""
    after: tuple[int, ...]
    """Tokens behind the user's turn, its end among them; empty where the target cannot ask: its
    template is missing, or does not end a user's turn by an end token."""

    @classmethod
    def of(cls, text: Text, config: ModelConfig) -> Self:
        """Find the layout; raises `BadRecipe` for a tokenizer that the target cannot use."""
        check(text, config)
        ends = frozenset(config.end_ids)
        if not text.has_chat_template:
            return cls(text, ends, (), ())
        laid_out = text.encode_chat([Message("user", "")])
        places = [i for i, token in enumerate(laid_out) if token in ends]
        if not places:
            return cls(text, ends, (), ())
        return cls(text, ends, tuple(laid_out[: places[-1]]), tuple(laid_out[places[-1] :]))

    @property
    def can_ask(self) -> bool:
        """True if the target may write a user's turn."""
        return bool(self.after)

    @property
    def length(self) -> int:
        """Tokens around a question."""
        return len(self.asked("?")) - 1

    @property
    def digest(self) -> str:
        """What tells it apart from other layouts: 16 hex digits of its SHA-256."""
        parts = json.dumps([self.before, self.after, sorted(self.ends)])
        return hashlib.sha256(parts.encode()).hexdigest()[:16]

    def asked(self, question: str) -> list[int]:
        """Return the tokens up to the answer; plain text where there is no chat template."""
        if self.text.has_chat_template:
            return self.text.encode_chat([Message("user", question)])
        return self.text.encode(question)

    def asked_within(self, question: str, longest: int) -> list[int]:
        """Return the same in so many tokens at most: a question that is too long loses its end.

        One character must fit.
        """
        if len(tokens := self.asked(question)) <= longest:
            return tokens
        kept, lost = 1, len(question)
        while lost - kept > 1:
            middle = (kept + lost) // 2
            if len(self.asked(question[:middle])) <= longest:
                kept = middle
            else:
                lost = middle
        return self.asked(question[:kept])

    def begun(self, words: str) -> list[int]:
        """Return the tokens of a user's turn that is to be written on."""
        return [*self.before, *(self.text.encode(words, special=False) if words else [])]


def check(text: Text, config: ModelConfig) -> None:
    """Raise `BadRecipe` for a tokenizer without ids, or whose ids the target does not have."""
    if not any(text.tokens):
        raise BadRecipe("the target's tokenizer has no ids: its tokenizer.json holds no vocabulary")
    if len(text.tokens) > config.vocab:
        raise BadRecipe(
            f"the target's tokenizer has ids up to {len(text.tokens) - 1}, its embedding only "
            f"{config.vocab} rows: it is another model's tokenizer"
        )
    if not config.end_ids:
        raise BadRecipe(
            "the target's config names no token that ends an answer (eos_token_id), so its answers "
            "would have no end"
        )
