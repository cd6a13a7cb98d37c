"""The code blocks of README, which tests run as they stand there."""

import re
from pathlib import Path

README = Path(__file__).parents[1] / "README.md"


def blocks(heading: str) -> list[str]:
    """Return the code blocks of one section, in order; `KeyError` if README lacks the section."""
    sections = re.split(r"^## (.+)\n", README.read_text(encoding="utf-8"), flags=re.MULTILINE)
    section = dict(zip(sections[1::2], sections[2::2], strict=True))[heading]
    return re.findall(r"^```\w*\n(.*?)^```$", section, flags=re.MULTILINE | re.DOTALL)


def commands(block: str) -> list[str]:
    """Return the commands of a block of shell: continued lines joined, comments left out."""
    joined = block.replace("\\\n", " ")
    lines = (line.partition(" #")[0] for line in joined.splitlines())
    return [command.strip() for line in lines for command in line.split("&&") if command.strip()]
