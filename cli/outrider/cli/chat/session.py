"""The loop of a chat: a line in, an answer or a command's words out.

Answers go to stdout, all else to stderr, so that a chat can be piped. Leaves what lines mean to
`commands`.
"""

import contextlib
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

from outrider.cli.chat.commands import ChatState, Step, take
from outrider.cli.chat.conversation import Conversation
from outrider.cli.failures import BadInput
from outrider.client import (
    Client,
    ClientError,
    FinishReason,
    Model,
    Options,
    Result,
    Unauthenticated,
)

HELP = "/help shows the commands, Ctrl-D ends the chat."
PROMPT, FURTHER = "> ", "… "
QUOTES = '"""'
"""Around a message of several lines."""


def chat(client: Client, options: Options, talk: ChatState, lines: Iterable[str]) -> None:
    """Answer `lines` until they end or one ends the chat; raises `ClientError` if nobody answers
    at first, and `BadInput` for a model that holds no conversations."""
    model = client.models()[0]
    if not model.has_chat_template:
        raise BadInput(
            f"{model.name} has no chat template, so it holds no conversations; "
            "`outrider generate` completes text"
        )
    say(f"{model.name}, {model.context_length} tokens. {HELP}")
    for line in lines:
        if not line.strip():
            continue
        try:
            step = take(line.strip(), talk)
            if step.words:
                say(step.words)
            if step.ends:
                return
            talk = answered(client, options, model, step)
        except Unauthenticated:
            raise
        except (BadInput, ClientError) as error:
            say(str(error))


def answered(client: Client, options: Options, model: Model, step: Step) -> ChatState:
    """Return the talk after a step, its question answered if it has one; raises `ClientError`, and
    `BadInput` where the conversation fills the context."""
    talk = step.talk
    if step.question is None:
        return talk
    asked = talk.conversation.asked(step.question)
    room = model.context_length - len(client.tokenize(asked.messages))
    if room <= 0:
        raise BadInput(
            f"the conversation fills the context of {model.context_length} tokens; "
            "/reset begins anew"
        )
    asking = Options(**options)
    asking["max_tokens"] = min(options.get("max_tokens") or room, room)
    if not talk.speculate:
        asking["speculate"] = False
    return replace(talk, conversation=asked.answered(stream(client, asked, asking)))


def stream(client: Client, conversation: Conversation, options: Options) -> str:
    """Show an answer while it comes, then its figures; Ctrl-C ends it early. Return its text."""
    pieces: list[str] = []
    with client.generate(conversation.messages, **options) as answer:
        figures = "stopped"
        with contextlib.suppress(KeyboardInterrupt), shown() as show:
            for chunk in answer:
                pieces.append(chunk.text)
                show(chunk.text)
            figures = status(answer.result)
        say(figures)
    return "".join(pieces)


@contextlib.contextmanager
def shown() -> Iterator[Callable[[str], None]]:
    """Yield what shows a piece of an answer: Markdown on a terminal, else the text as it is."""
    if sys.stdout.isatty():
        from rich.console import Console

        from outrider.cli.terminal.markdown import GrowingMarkdown

        with GrowingMarkdown(Console()) as growing:
            yield growing.add
        return
    try:
        yield write
    finally:
        write("\n")


def status(result: Result) -> str:
    """Return the figures of an answer on one line."""
    figures = [
        f"{result.usage.completion_tokens} tokens",
        _figure(result.tokens_per_second, "{:.1f} tokens/s"),
        _figure(result.acceptance, "acceptance rate {:.0%}"),
        _figure(result.tokens_per_pass, "{:.2f} tokens per pass")
        if result.usage.draft_rows
        else "",
        f"first token after {1000 * result.timing.first_token_seconds:.0f} ms",
        "cut: --max-tokens or the context" if result.finish_reason is FinishReason.LENGTH else "",
    ]
    return f"[{' · '.join(filter(None, figures))}]"


def _figure(value: float | None, form: str) -> str:
    return "" if value is None else form.format(value)


def typed() -> Iterator[str]:
    """Yield the messages that are typed, with editing and history where there is a terminal."""
    if not sys.stdin.isatty():
        yield from messages(_next_line)
        return
    with contextlib.suppress(ImportError):  # not on every system
        import readline  # noqa: F401  # `input` edits lines with it
    while True:
        try:
            yield from messages(input)
            write("\n")
            return
        except KeyboardInterrupt:
            write("\n")
            say(HELP)


def messages(read: Callable[[str], str]) -> Iterator[str]:
    """Yield each line, and as one message the lines between triple quotes.

    `read` returns the next line after a prompt; its `EOFError` ends all.
    """
    while True:
        try:
            line = read(PROMPT)
        except EOFError:
            return
        yield _quoted(line.removeprefix(QUOTES), read) if line.startswith(QUOTES) else line


def _quoted(first: str, read: Callable[[str], str]) -> str:
    """Return a message to the end of its quotes, or of the input."""
    lines = [first]
    with contextlib.suppress(EOFError):
        while not lines[-1].endswith(QUOTES):
            lines.append(read(FURTHER))
    return "\n".join(lines).removesuffix(QUOTES).strip("\n")


def _next_line(_: str) -> str:
    if line := sys.stdin.readline():
        return line.rstrip("\n")
    raise EOFError


def write(text: str) -> None:
    """Write a piece of an answer."""
    sys.stdout.write(text)
    sys.stdout.flush()


def say(words: str) -> None:
    """Say something that is no answer; dim on a terminal."""
    dim = sys.stderr.isatty()
    print(f"\033[2m{words}\033[0m" if dim else words, file=sys.stderr, flush=True)
