"""A Dockerfile's instructions, as far as a test needs them where no image can be built.

Knows continuation lines, comments and stages; leaves what to run to the test.
"""

import json
import shlex
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Instruction:
    """One instruction."""

    name: str
    rest: str

    @property
    def words(self) -> list[str]:
        """What follows, as a shell or as JSON."""
        if self.rest.startswith("["):
            words: list[str] = json.loads(self.rest)
            return words
        return shlex.split(self.rest)


@dataclass(frozen=True, slots=True)
class Stage:
    """From one FROM to the next."""

    name: str
    """Empty: the image itself."""
    instructions: tuple[Instruction, ...]

    def all(self, name: str) -> list[Instruction]:
        """All instructions of a name, in their order."""
        return [one for one in self.instructions if one.name == name]

    def last(self, name: str) -> Instruction:
        """The one that counts."""
        return self.all(name)[-1]


def stages(file: Path) -> list[Stage]:
    """All stages of a Dockerfile; the last is the image."""
    found: list[tuple[str, list[Instruction]]] = []
    for one in _instructions(file.read_text()):
        if one.name == "FROM":
            base = one.words
            found.append((base[2] if base[1:2] == ["AS"] else "", []))
        elif found:  # before the first stage there are only arguments of FROM
            found[-1][1].append(one)
    return [Stage(name, tuple(instructions)) for name, instructions in found]


def copied(stage: Stage) -> list[tuple[list[str], str]]:
    """Sources from outside and where they go, in their order."""
    every = [one.words for one in stage.all("COPY")]
    return [(words[:-1], words[-1]) for words in every if not words[0].startswith("--from")]


def _instructions(text: str) -> list[Instruction]:
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
    joined = "\n".join(lines).replace("\\\n", " ")
    split = (line.split(maxsplit=1) for line in joined.splitlines())
    return [Instruction(name, rest) for name, rest in split]
