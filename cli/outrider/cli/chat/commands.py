"""Lines of a chat that begin with a slash: what each does to the talk, and what it says."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

from outrider.cli.chat.conversation import Conversation
from outrider.cli.failures import BadInput

SLASH = "/"


@dataclass(frozen=True, slots=True)
class ChatState:
    """The state of a chat between two lines."""

    conversation: Conversation = field(default_factory=Conversation)
    speculate: bool = True
    """False: answers come by plain decoding."""


@dataclass(frozen=True, slots=True)
class Step:
    """What one line comes to."""

    talk: ChatState
    question: str | None = None
    """To be asked now."""
    words: str = ""
    """To be shown."""
    ends: bool = False


def take(line: str, talk: ChatState) -> Step:
    """Return what a line comes to: a question, or what a command does; raises `BadInput`.

    `//` begins a question that begins with a slash.
    """
    if not line.startswith(SLASH):
        return Step(talk, question=line)
    if line.startswith(SLASH * 2):
        return Step(talk, question=line[1:])
    name, _, rest = line[1:].partition(" ")
    if name not in COMMANDS:
        raise BadInput(f"/{name} is not allowed; allowed: {', '.join(f'/{n}' for n in COMMANDS)}")
    return COMMANDS[name].run(talk, rest.strip())


def _help(talk: ChatState, rest: str) -> Step:
    lines = [
        f"{f'/{name} {command.takes}':20}{command.words}" for name, command in COMMANDS.items()
    ]
    keys = (
        'Text between lines that begin and end with """ is one message.',
        "Ctrl-C stops an answer, Ctrl-D ends the chat.",
    )
    return Step(talk, words="\n".join((*lines, *keys)))


def _reset(talk: ChatState, rest: str) -> Step:
    fresh = Conversation(talk.conversation.system)
    return Step(replace(talk, conversation=fresh), words="The conversation begins anew.")


def _system(talk: ChatState, rest: str) -> Step:
    if not rest:
        return Step(talk, words=talk.conversation.system or "There is no system prompt.")
    told = replace(talk.conversation, system=rest)
    return Step(replace(talk, conversation=told), words="The model is told so from now on.")


def _save(talk: ChatState, rest: str) -> Step:
    talk.conversation.write(_path("save", rest))
    return Step(talk, words=f"{len(talk.conversation.turns)} turns are in {rest}.")


def _load(talk: ChatState, rest: str) -> Step:
    found = Conversation.read(_path("load", rest))
    return Step(replace(talk, conversation=found), words=f"{len(found.turns)} turns from {rest}.")


def _retry(talk: ChatState, rest: str) -> Step:
    question = talk.conversation.last_question
    if question is None:
        raise BadInput("/retry needs a question before it")
    before = talk.conversation.before_last_question()
    return Step(replace(talk, conversation=before), question=question)


def _draft(talk: ChatState, rest: str) -> Step:
    if rest not in ("on", "off"):
        raise BadInput(f"/draft {rest!r} is not allowed; allowed: on or off")
    words = "Answers come with the draft." if rest == "on" else "Answers come by plain decoding."
    return Step(replace(talk, speculate=rest == "on"), words=words)


def _quit(talk: ChatState, rest: str) -> Step:
    return Step(talk, ends=True)


def _path(command: str, rest: str) -> Path:
    if not rest:
        raise BadInput(f"/{command} needs a FILE")
    return Path(rest).expanduser()


@dataclass(frozen=True, slots=True)
class SlashCommand:
    """One command."""

    run: Callable[[ChatState, str], Step]
    words: str
    """For /help."""
    takes: str = ""


COMMANDS = {
    "help": SlashCommand(_help, "shows this"),
    "reset": SlashCommand(_reset, "forgets what was said; the system prompt stays"),
    "system": SlashCommand(_system, "what the model is told; without TEXT, shows it", "[TEXT]"),
    "retry": SlashCommand(_retry, "asks the last question again"),
    "draft": SlashCommand(_draft, "with the draft, or by plain decoding", "on|off"),
    "save": SlashCommand(_save, "writes the conversation as JSON", "FILE"),
    "load": SlashCommand(_load, "goes on with a conversation that was saved", "FILE"),
    "quit": SlashCommand(_quit, "ends the chat"),
}
"""Commands by name, in the order of /help."""
