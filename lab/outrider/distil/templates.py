"""The bundled sets of prompts: openings, whole questions from templates, or nothing at all.

Where a question is begun or empty, the target writes it: chats as it expects them (as in Magpie,
arXiv 2406.08464). Texts are this project's own, under its licence.
"""

import math
import random
import re
from pathlib import Path

from outrider.distil.prompts import Opening, Question

FOLDER = Path(__file__).parent / "template_texts"
"""A folder a set: `openings.txt`; a file of templates by kind in `questions`, and what fills them
by name in `slots`. A text is a line, its breaks and tabs are written as \\n and \\t."""
BUNDLED = {folder.name: folder for folder in sorted(FOLDER.iterdir()) if folder.is_dir()}
"""Folders of the bundled sets by the name that `prompts` takes."""
SHARES = {Opening.NOTHING: 0.15, Opening.WORDS: 0.20, Opening.ALL: 0.65}
SLOT = re.compile(r"(?:\b([Aa]) )?\{(\w+)\}")
"""A slot, and the article before it."""
VOWEL = re.compile(r"(?!eu|on[ce]|uni|use)[aeiou]", re.IGNORECASE)
"""How a word begins that takes "an"."""
MOST_FILLINGS = 300
"""A template is chosen as often as it can be filled, up to so many times: one without slots makes
the same chat again and again."""


class Templates:
    """Makes questions; the same for the same seed and number."""

    def __init__(self, seed: int, folder: Path, whole: bool = False) -> None:
        """`folder`: of the set; `whole`: all questions are given as a whole, the target writes
        none."""
        self._seed = seed
        self._shares = {Opening.ALL: 1.0} if whole else SHARES
        self._openings = _lines(folder / "openings.txt")
        self._slots = {file.stem: _lines(file) for file in (folder / "slots").glob("*.txt")}
        kinds = [_lines(file) for file in sorted((folder / "questions").glob("*.txt"))]
        self._kinds = [(kind, [self._fillings(one) for one in kind]) for kind in kinds]

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
                (template,) = rng.choices(*rng.choice(self._kinds))
                return Question(opening, self._filled(template, rng))

    def _fillings(self, template: str) -> int:
        names = [name for _, name in SLOT.findall(template)]
        return min(math.prod(len(self._slots[name]) for name in names), MOST_FILLINGS)

    def _filled(self, template: str, rng: random.Random) -> str:
        """Return a template with its slots filled, no two of a name alike."""
        names = [name for _, name in SLOT.findall(template)]
        fills = {name: rng.sample(self._slots[name], names.count(name)) for name in names}

        def fill(slot: re.Match[str]) -> str:
            article, text = slot[1], fills[slot[2]].pop()
            if article is None:
                return text
            return f"{article}n {text}" if VOWEL.match(text) else f"{article} {text}"

        text = SLOT.sub(fill, template)
        return text[0].upper() + text[1:]


def _lines(file: Path) -> list[str]:
    lines = file.read_text(encoding="utf-8").splitlines()
    return [line.replace(r"\n", "\n").replace(r"\t", "\t") for line in lines]
