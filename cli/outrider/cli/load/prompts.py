"""The prompts that come with the package, and those of a file of one's own.

Choosing among them and giving them a length is `workload`'s.
"""

import json
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

from outrider.cli.failures import BadInput

FORMS = 'a text, {"prompt": text} or {"messages": [{"role": text, "content": text}, …]}'
"""What an entry of a file may be."""


@dataclass(frozen=True, slots=True)
class BundledPrompt:
    """One prompt of the package."""

    id: str
    kind: str
    """Sort of text it asks for: code, story, maths and so on."""
    text: str


@dataclass(frozen=True, slots=True)
class Turn:
    """One message of a conversation."""

    role: str
    content: str


@dataclass(frozen=True, slots=True)
class Conversation:
    """Messages that a request sends."""

    turns: tuple[Turn, ...]
    max_tokens: int | None = None
    """Most tokens of the answer; None leaves it to the length mix."""


def bundled() -> list[BundledPrompt]:
    """The prompts of the package."""
    file = resources.files("outrider.cli.load") / "prompts.json"
    return [BundledPrompt(**entry) for entry in json.loads(file.read_text(encoding="utf-8"))]


def read(path: Path) -> list[Conversation]:
    """The conversations of a JSON list or of JSON lines; raises `BadInput` that names the entry."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8 text"
        raise BadInput(f"--prompts {path}: {reason}") from None
    found = [_conversation(path, number, entry) for number, entry in _entries(path, text)]
    if not found:
        raise BadInput(f"--prompts {path}: holds no prompt; allowed: at least one")
    return found


def _entries(path: Path, text: str) -> list[tuple[int, Any]]:
    if text.lstrip().startswith("["):
        return list(enumerate(_parsed(path, 1, text), 1))
    lines = enumerate(text.splitlines(), 1)
    return [(number, _parsed(path, number, line)) for number, line in lines if line.strip()]


def _parsed(path: Path, line: int, text: str) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        at = line + error.lineno - 1
        raise BadInput(f"--prompts {path}: line {at} is not JSON: {error.msg}") from None


def _conversation(path: Path, number: int, entry: Any) -> Conversation:
    fields = {"prompt": entry} if isinstance(entry, str) else entry
    try:
        if unknown := fields.keys() - {"prompt", "messages", "max_tokens"}:
            raise ValueError(f"unknown key {sorted(unknown)[0]!r}")
        turns = fields.get("messages") or [{"role": "user", "content": fields["prompt"]}]
        return Conversation(tuple(_turn(turn) for turn in turns), _limit(fields))
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        shown = json.dumps(entry, ensure_ascii=False)[:60]
        why = f" ({error})" if isinstance(error, ValueError) else ""
        message = f"--prompts {path}: entry {number} is {shown}{why}; allowed: {FORMS}"
        raise BadInput(f"{message}, with a max_tokens if you like") from None


def _turn(fields: Any) -> Turn:
    turn = Turn(**fields)
    if not (isinstance(turn.role, str) and isinstance(turn.content, str) and turn.content):
        raise TypeError
    return turn


def _limit(fields: dict[str, Any]) -> int | None:
    limit = fields.get("max_tokens")
    if limit is not None and (type(limit) is not int or limit < 1):
        raise ValueError(f"max_tokens {limit!r} is not a whole number above 0")
    return limit
