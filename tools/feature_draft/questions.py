"""What users ask in the chats that the target writes: openings, whole questions, or nothing."""

import enum
import random
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

FOLDER = Path(__file__).parent / "prompts"
NUMBERS = (2, 400)
"""Of arithmetic questions."""


class Opening(enum.Enum):
    """How much of a user's turn is given; the target writes the rest."""

    NOTHING = "nothing"
    WORDS = "words"
    ALL = "all"


SHARES = {Opening.NOTHING: 0.25, Opening.WORDS: 0.30, Opening.ALL: 0.45}
TASKS = 0.3
"""Share of whole questions that are tasks; the others are a template about a topic."""


@dataclass(frozen=True, slots=True)
class Question:
    """A user's turn, or the beginning of one."""

    opening: Opening
    text: str


class QuestionSource(Protocol):
    """Where users' turns come from."""

    def draw(self) -> Question:
        """Return the next one."""
        ...


class Questions:
    """Draws questions; the same for the same seed."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._openings, self._templates, self._topics, self._tasks = (
            (FOLDER / f"{name}.txt").read_text(encoding="utf-8").splitlines()
            for name in ("openings", "templates", "topics", "tasks")
        )

    def draw(self) -> Question:
        """Return the next question."""
        (opening,) = self._random.choices(list(SHARES), list(SHARES.values()))
        match opening:
            case Opening.NOTHING:
                return Question(opening, "")
            case Opening.WORDS:
                return Question(opening, self._random.choice(self._openings))
        if self._random.random() < TASKS:
            return Question(opening, self._task())
        template = self._random.choice(self._templates)
        topics = self._random.sample(self._topics, template.count("{}"))
        return Question(opening, template.format(*topics))

    def _task(self) -> str:
        task = self._random.choice(self._tasks)
        numbers = [self._random.randint(*NUMBERS) for _ in range(task.count("{}"))]
        return task.format(*numbers)
