"""The bundled prompts: openings, whole questions from templates, or nothing at all.

Where a question is begun or empty, the target writes it: chats as it expects them (as in Magpie,
arXiv 2406.08464). Texts are this project's own, under its licence.
"""

import random
import re
from pathlib import Path

from outrider.distil.prompts import Opening, Question

FOLDER = Path(__file__).parent / "template_texts"
"""`openings.txt`; a file of templates by kind in `questions`, and what fills them by name in
`slots`."""
SHARES = {Opening.NOTHING: 0.15, Opening.WORDS: 0.20, Opening.ALL: 0.65}
SLOT = re.compile(r"\{(\w+)\}")


class Templates:
    """Makes questions; the same for the same seed and number."""

    def __init__(self, seed: int, whole: bool = False) -> None:
        """`whole`: all questions are given as a whole; the target writes none."""
        self._seed = seed
        self._shares = {Opening.ALL: 1.0} if whole else SHARES
        self._openings = _lines(FOLDER / "openings.txt")
        self._kinds = [_lines(file) for file in sorted((FOLDER / "questions").glob("*.txt"))]
        self._slots = {file.stem: _lines(file) for file in (FOLDER / "slots").glob("*.txt")}

    def question(self, number: int) -> Question:
        """Return the question of a number."""
        rng = random.Random(f"{self._seed} {number}")
        (opening,) = rng.choices(list(self._shares), list(self._shares.values()))
        match opening:
            case Opening.NOTHING:
                return Question(opening, "")
            case Opening.WORDS:
                return Question(opening, rng.choice(self._openings))
            case Opening.ALL:
                return Question(opening, self._filled(rng.choice(rng.choice(self._kinds)), rng))

    def _filled(self, template: str, rng: random.Random) -> str:
        """Return a template with its slots filled, no two of a name alike."""
        names = SLOT.findall(template)
        fills = {name: rng.sample(self._slots[name], names.count(name)) for name in names}
        text = SLOT.sub(lambda slot: fills[slot[1]].pop(), template)
        return text[0].upper() + text[1:]


def _lines(file: Path) -> list[str]:
    return file.read_text(encoding="utf-8").splitlines()
