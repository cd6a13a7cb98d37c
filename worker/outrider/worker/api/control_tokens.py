"""Control tokens in the texts of a chat, where they are text and nothing else.

A chat template writes control tokens (`<|im_start|>`) around turns; the same characters in what a
user wrote would end the user's turn and begin another. Each gets a break, and what the template has
laid out is encoded piece by piece, between breaks. Leaves encoding to `text`.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Self

BREAK = "\ufdd0"
"""A noncharacter of Unicode (23.7): no text that is exchanged has it, and no template writes it."""
REPLACEMENT = "\ufffd"


@dataclass(frozen=True, slots=True)
class ControlTokens:
    """The control tokens of one tokenizer."""

    _pattern: re.Pattern[str]

    @classmethod
    def of(cls, tokens: Iterable[str]) -> Self:
        """Return those of `tokens`; one of a single character cannot be broken and is left out."""
        long = sorted({re.escape(token) for token in tokens if len(token) > 1}, key=len)
        return cls(re.compile("|".join(reversed(long)) or "(?!)"))

    def broken(self, value: Any) -> Any:
        """Return plain JSON with a break in every control token of its texts."""
        if isinstance(value, str):
            return self._broken_text(value)
        if isinstance(value, Mapping):
            return {self.broken(key): self.broken(below) for key, below in value.items()}
        if isinstance(value, list | tuple):
            return [self.broken(member) for member in value]
        return value

    def _broken_text(self, text: str) -> str:
        """Break every control token after its first character; those that overlap as well.

        Takes time linear in the length of `text`: it may be a whole body of 16 MiB.
        """
        text, pieces, begin = text.replace(BREAK, REPLACEMENT), list[str](), 0
        while found := self._pattern.search(text, begin):
            end = found.start() + 1
            pieces.append(text[begin:end])
            begin = end
        return BREAK.join((*pieces, text[begin:]))
