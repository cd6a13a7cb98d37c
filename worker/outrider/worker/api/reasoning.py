"""Reasoning of a model that thinks before it answers, split off an answer as it comes.

Such a model's chat template knows `<think>` and `</think>`. The first may be the last of the prompt
or the first of the answer; an answer without it is content alone.
"""

from dataclasses import dataclass, field
from enum import Enum, auto

import numpy as np

from outrider.worker.api.text import THOUGHT_TAGS, Text, beginning_of

OPEN, CLOSE = THOUGHT_TAGS
TAIL_TOKENS = 16
"""Tokens at the end of a prompt in which `OPEN` is looked for."""


class Place(Enum):
    """Part of an answer that its next character belongs to."""

    START = auto()
    """It has to be seen which."""
    REASONING = auto()
    CONTENT = auto()


def first_place(text: Text, prompt: np.ndarray) -> Place:
    """Return where the answer to a chat begins; prompt int32[tokens]."""
    if not text.thinks:
        return Place.CONTENT
    end = text.detokenizer(begins=False, of_chat=True).push(prompt[-TAIL_TOKENS:].tolist())
    opened = end.rstrip().endswith(OPEN)
    return Place.REASONING if opened else Place.START


@dataclass(slots=True)
class Reasoning:
    """Splits one answer into reasoning and content, without the blanks at the edges of the first
    and before the second."""

    place: Place
    _buffer: str = ""
    _begun: bool = field(init=False)
    """Whether blanks belong to the present part, as they do once something of it was shown."""

    def __post_init__(self) -> None:
        self._begun = self.place is Place.CONTENT

    def push(self, text: str) -> tuple[str, str]:
        """Take a piece of the answer; return what is certain of its reasoning and its content."""
        if self.place is Place.CONTENT and self._begun:
            return "", text
        self._buffer += text
        if self.place is Place.START and not self._starts():
            return "", ""
        reasoning = self._reasoning() if self.place is Place.REASONING else ""
        return reasoning, self._content() if self.place is Place.CONTENT else ""

    def finish(self) -> tuple[str, str]:
        """Return what is left of both at the end."""
        left, self._buffer = self._buffer, ""
        return (left.rstrip(), "") if self.place is Place.REASONING else ("", left)

    def _starts(self) -> bool:
        """Find out with which part the answer begins; False: it is not certain yet."""
        begun = self._buffer.lstrip()
        if begun.startswith(OPEN):
            self.place, self._buffer = Place.REASONING, begun.removeprefix(OPEN)
        elif not OPEN.startswith(begun):
            self.place, self._begun = Place.CONTENT, True  # its blanks are its own
        return self.place is not Place.START

    def _reasoning(self) -> str:
        """Take the reasoning that is certain; what may be the tag, or blanks before it, is not."""
        found, tag, rest = self._buffer.partition(CLOSE)
        if tag:
            self._buffer, self.place = rest, Place.CONTENT
            shown = self._without_begin(found.rstrip())
            self._begun = False
            return shown
        shown = found[: len(found) - beginning_of(CLOSE, found)].rstrip()
        self._buffer = found[len(shown) :]
        return self._without_begin(shown)

    def _content(self) -> str:
        shown, self._buffer = self._without_begin(self._buffer), ""
        return shown

    def _without_begin(self, text: str) -> str:
        text = text if self._begun else text.lstrip()
        self._begun = self._begun or bool(text)
        return text
