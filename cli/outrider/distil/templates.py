"""The bundled prompts: openings, whole questions from templates, or nothing at all.

Where a question is begun or empty, the target writes it: chats as it expects them (as in Magpie,
arXiv 2406.08464). Texts are this project's own, under its licence.
"""

import random
from pathlib import Path

from outrider.distil.prompts import Opening, Question

FOLDER = Path(__file__).parent / "template_texts"
NUMBERS = (2, 400)
"""Of arithmetic questions."""
SHARES = {Opening.NOTHING: 0.25, Opening.WORDS: 0.30, Opening.ALL: 0.45}
TASKS = 0.3
"""Share of whole questions that are tasks; the others are a template about a topic."""


class Templates:
    """Makes questions; the same for the same seed and number."""

    def __init__(self, seed: int, whole: bool = False) -> None:
        """`whole`: all questions are given as a whole; the target writes none."""
        self._seed = seed
        self._shares = {Opening.ALL: 1.0} if whole else SHARES
        self._openings, self._templates, self._topics, self._tasks = (
            (FOLDER / f"{name}.txt").read_text(encoding="utf-8").splitlines()
            for name in ("openings", "templates", "topics", "tasks")
        )

    def question(self, number: int) -> Question:
        """Return the question of a number."""
        rng = random.Random(f"{self._seed} {number}")
        (opening,) = rng.choices(list(self._shares), list(self._shares.values()))
        match opening:
            case Opening.NOTHING:
                return Question(opening, "")
            case Opening.WORDS:
                return Question(opening, rng.choice(self._openings))
        if rng.random() < TASKS:
            return Question(opening, self._task(rng))
        template = rng.choice(self._templates)
        return Question(opening, template.format(*rng.sample(self._topics, template.count("{}"))))

    def _task(self, rng: random.Random) -> str:
        task = rng.choice(self._tasks)
        return task.format(*[rng.randint(*NUMBERS) for _ in range(task.count("{}"))])
