"""Prompts of a distillation: from files, from named open sets, from templates; by their number.

The same number always has the same prompt, so that a run that was killed asks what it would have
asked. The first numbers are held out: what is asked there is never trained on.
"""

import enum
import hashlib
import json
import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from outrider.distil.errors import BadRecipe

HELD_OUT = 64
"""Chats, the first ones, on which nothing is trained."""
STRIDE = 1_000_003
"""Distance from a question that is held out to the one instead of it; a prime, so that it reaches
all."""
ATTEMPTS = 1000
FIELDS = ("prompt", "instruction", "question")
"""Fields of a JSON line, the first of which that is there has the prompt; else `messages` has it,
as the user's first turn."""


class Opening(enum.Enum):
    """How much of a user's turn is given; the target writes the rest."""

    NOTHING = "nothing"
    WORDS = "words"
    ALL = "all"


@dataclass(frozen=True, slots=True)
class Question:
    """A user's turn, or the beginning of one."""

    opening: Opening
    text: str


class PromptSource(Protocol):
    """Where users' turns come from."""

    def question(self, number: int) -> Question:
        """Return the one of a number, from 0 on; the same whenever it is asked for."""
        ...


class PromptList:
    """Prompts of a list, in an order that follows from the seed, again and again.

    The first `held_out` numbers have prompts that no later number has.
    """

    def __init__(self, texts: Sequence[str], seed: int, held_out: int) -> None:
        order = random.Random(seed).sample(range(len(texts)), len(texts))
        self._texts = [texts[i] for i in order]
        self._held_out = held_out

    def question(self, number: int) -> Question:
        """Return the prompt of a number."""
        if number >= self._held_out:
            kept = len(self._texts) - self._held_out
            number = self._held_out + (number - self._held_out) % kept
        return Question(Opening.ALL, self._texts[number])


class MixedPrompts:
    """Several sources that take turns; one that is there twice goes on at its second turn."""

    def __init__(self, sources: Sequence[PromptSource]) -> None:
        self._sources = sources

    def question(self, number: int) -> Question:
        """Return the question of a number."""
        turn, place = divmod(number, len(self._sources))
        source = self._sources[place]
        before = self._sources[:place].count(source)
        return source.question(turn * self._sources.count(source) + before)


class SeparateHeldOut:
    """Held-out prompts of a file of their own, then those of another source."""

    def __init__(self, held_out: Sequence[str], source: PromptSource) -> None:
        self._held_out, self._source = held_out, source

    def question(self, number: int) -> Question:
        """Return the question of a number."""
        if number < len(self._held_out):
            return Question(Opening.ALL, self._held_out[number])
        return self._source.question(number - len(self._held_out))


class ReservedPrompts:
    """A source whose first questions never come again: those that are asked as a whole.

    A later number with such a text has the question of another one far off.
    """

    def __init__(self, source: PromptSource, held_out: int) -> None:
        """Raises `BadRecipe` if nothing else is asked than what is held out."""
        self._source, self._held_out = source, held_out
        first = [source.question(number) for number in range(held_out)]
        self._texts = {one.text for one in first if one.opening is Opening.ALL}
        self.question(held_out)

    def question(self, number: int) -> Question:
        """Return the question of a number; raises `BadRecipe`."""
        if number < self._held_out:
            return self._source.question(number)
        for other in range(number, number + ATTEMPTS * STRIDE, STRIDE):
            found = self._source.question(other)
            if found.opening is not Opening.ALL or found.text not in self._texts:
                return found
        raise BadRecipe("prompts: there is none to train on beside those that are held out")


def read_prompts(file: Path) -> list[str]:
    """Return the prompts of a file, each once: a line each, or JSON lines; raises `BadRecipe`."""
    try:
        lines = file.read_text(encoding="utf-8").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise BadRecipe(f"prompts {file}: {getattr(error, 'strerror', None) or error}") from error
    read = _of_json if file.suffix == ".jsonl" else _of_text
    found = [read(line, f"{file}, line {i}") for i, line in enumerate(lines, 1) if line.strip()]
    return list(dict.fromkeys(found))


def check_count(count: int, held_out: int, where: str) -> None:
    """Raise `BadRecipe` if so few prompts leave too little to train on."""
    if count < 2 * held_out:
        raise BadRecipe(
            f"{where}: {count} prompts are too few: {held_out} are held out to test the draft on, "
            "and at least as many must be left to train it"
        )


def digest(texts: Sequence[str]) -> str:
    """Return what tells lists of prompts apart: 16 hex digits of their SHA-256."""
    return hashlib.sha256(json.dumps(list(texts)).encode()).hexdigest()[:16]


def _of_text(line: str, where: str) -> str:
    return line.strip()


def _of_json(line: str, where: str) -> str:
    try:
        fields: Any = json.loads(line)
    except ValueError as error:
        raise BadRecipe(f"{where}: {error}") from error
    if not isinstance(fields, dict):
        raise BadRecipe(f"{where}: an object is needed")
    found = [fields[name] for name in FIELDS if name in fields] or _first_turn(fields)
    if not found or not isinstance(found[0], str) or not found[0].strip():
        raise BadRecipe(f"{where}: one of {', '.join(FIELDS)} or messages must be there, as text")
    return found[0].strip()


def _first_turn(fields: dict[str, Any]) -> list[Any]:
    """Return what the user says first in `messages`, if there are any."""
    turns = fields.get("messages")
    turns = [turn for turn in turns if isinstance(turn, dict)] if isinstance(turns, list) else []
    return [turn.get("content") for turn in turns if turn.get("role") == "user"][:1]
