"""A conversation: what the model is told, and what was said so far. Pure, but for its file."""

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from outrider.cli.failures import BadInput
from outrider.client import Message

ROLES = ("system", "user", "assistant")


@dataclass(frozen=True, slots=True)
class Conversation:
    """Turns of a user and of the model, after what the model is told."""

    system: str | None = None
    turns: tuple[Message, ...] = ()

    @property
    def messages(self) -> tuple[Message, ...]:
        """Everything, for the model's chat template."""
        told = () if self.system is None else (Message("system", self.system),)
        return (*told, *self.turns)

    @property
    def last_question(self) -> str | None:
        """What the user said last; None: nothing yet."""
        said = [turn.content for turn in self.turns if turn.role == "user"]
        return said[-1] if said else None

    def asked(self, text: str) -> "Conversation":
        """Return the conversation with one more turn of the user."""
        return replace(self, turns=(*self.turns, Message("user", text)))

    def answered(self, text: str) -> "Conversation":
        """Return the conversation with one more turn of the model."""
        return replace(self, turns=(*self.turns, Message("assistant", text)))

    def before_last_question(self) -> "Conversation":
        """Return the conversation as it was before the user's last turn."""
        places = [at for at, turn in enumerate(self.turns) if turn.role == "user"]
        return replace(self, turns=self.turns[: places[-1]] if places else ())

    def write(self, path: Path) -> None:
        """Write it as JSON, in the shape of OpenAI's `messages`; raises `BadInput`."""
        said = [{"role": one.role, "content": one.content} for one in self.messages]
        text = json.dumps({"messages": said}, ensure_ascii=False, indent=2)
        try:
            path.write_text(f"{text}\n", encoding="utf-8")
        except OSError as error:
            raise BadInput(f"{path}: {error.strerror}") from None

    @classmethod
    def read(cls, path: Path) -> "Conversation":
        """Read what `write` wrote; raises `BadInput`."""
        try:
            messages = _messages(json.loads(path.read_text(encoding="utf-8")))
        except OSError as error:
            raise BadInput(f"{path}: {error.strerror}") from None
        except (ValueError, TypeError, KeyError):
            allowed = "JSON with `messages`, each with a role and content"
            raise BadInput(f"{path}: no conversation; allowed: {allowed}") from None
        told = messages[0].content if messages and messages[0].role == "system" else None
        return cls(told, tuple(messages if told is None else messages[1:]))


def _messages(data: Any) -> list[Message]:
    """Return the messages of a file; raises `ValueError`, `TypeError` or `KeyError`."""
    messages = [Message(one["role"], one["content"]) for one in data["messages"]]
    roles = [one.role for one in messages]
    texts = all(isinstance(one.content, str) for one in messages)
    if not texts or not set(roles) <= set(ROLES) or "system" in roles[1:]:
        raise ValueError("not turns of a conversation")
    return messages
