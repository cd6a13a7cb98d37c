"""The prompts that come with the package, and those of a file of one's own."""

import json
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

from outrider.cli.failures import BadInput
from outrider.cli.terminal.text import read_text


@dataclass(frozen=True, slots=True)
class BundledPrompt:
    """One prompt of the package."""

    id: str
    kind: str
    """Sort of text it asks for: code, story, maths and so on."""
    text: str

    def fields(self) -> dict[str, Any]:
        """Return what a request for it holds."""
        return {"messages": [{"role": "user", "content": self.text}]}


def bundled() -> list[BundledPrompt]:
    """Return the prompts of the package."""
    file = resources.files("outrider.cli.load") / "prompts.json"
    return [BundledPrompt(**entry) for entry in json.loads(file.read_text(encoding="utf-8"))]


def read(path: Path) -> list[dict[str, Any]]:
    """Return what requests for a file's prompts hold; raises `BadInput` that names the line."""
    try:
        lines = read_text(path).splitlines()
    except BadInput as error:
        raise BadInput(f"--prompts {error}") from None
    found = [_fields(path, number, line) for number, line in enumerate(lines, 1) if line.strip()]
    if not found:
        raise BadInput(f"--prompts {path}: holds no prompt; allowed: at least one")
    return found


def _fields(path: Path, number: int, line: str) -> dict[str, Any]:
    try:
        entry = json.loads(line)
        messages = entry.get("messages") or [{"role": "user", "content": entry["prompt"]}]
        texts = [one[key] for one in messages for key in ("role", "content")]
        limit = entry.get("max_tokens", 1)
        if entry.keys() - {"prompt", "messages", "max_tokens"} or type(limit) is not int:
            raise ValueError
        if limit < 1 or not all(isinstance(text, str) and text for text in texts):
            raise ValueError
    except (KeyError, TypeError, AttributeError, ValueError):
        forms = '{"prompt": text} or {"messages": [{"role": text, "content": text}, …]}'
        allowed = f"allowed: {forms}, with a max_tokens if you like"
        raise BadInput(f"--prompts {path}: line {number} is {line[:60]}; {allowed}") from None
    return {"messages": messages, **({"max_tokens": limit} if "max_tokens" in entry else {})}
