"""The user's prompts, asked of a target one after the other, with pieces as they come.

What is shown, and how, is left to `report` and the commands.
"""

import dataclasses
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from typing import BinaryIO

from outrider.cli.failures import BadInput
from outrider.cli.terminal.text import STDIN, read_stdin
from outrider.client import AsyncClient, Chunk, Message, Options, Prompt, Result, Sampling


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptSet:
    """Prompts and the options of their requests."""

    prompts: Sequence[str]
    """One answer for each."""
    system: str | None = None
    """What the model is told before each prompt."""
    sampling: Sampling = field(default_factory=Sampling)
    """Sampling params."""
    stop: Sequence[str] = ()
    """Strings at which an answer ends."""
    prediction: str | None = None
    """Text that the answers are expected to have; None: none is expected."""
    speculate: bool = True
    """False: by plain decoding."""
    max_tokens: int | None = None
    """Most tokens of each answer; None takes the target's default."""
    raw: bool = False
    """Text as it is, even where the model has a chat template."""
    compare: bool = False
    """Ask each prompt a second time, with the same seed: without speculation or, where the first
    answers came without it, with it."""


@dataclass(frozen=True, slots=True)
class Screen:
    """Where an answer goes while it comes."""

    begin: Callable[[str], None]
    """A prompt's answer begins."""
    chunk: Callable[[Chunk], None]
    """A piece of it comes."""
    end: Callable[[], None]
    """It is whole."""


SILENT = Screen(lambda prompt: None, lambda chunk: None, lambda: None)
NO_TEMPLATE = "This model has no chat template: prompts are sent as they are (--raw)."


def with_stdin(prompts: Sequence[str], stdin: BinaryIO) -> list[str]:
    """Return the prompts with the text of `stdin` in place of `-`; raises `BadInput`.

    Its last newline, which programs end their output with, is left out.
    """
    if prompts.count(STDIN) > 1:
        raise BadInput(f"{STDIN!r} is there {prompts.count(STDIN)} times; allowed: once")
    return [
        read_stdin(stdin).removesuffix("\n") if prompt == STDIN else prompt for prompt in prompts
    ]


async def ask(
    client: AsyncClient,
    questions: PromptSet,
    screen: Screen,
    seeds: Sequence[int] = (),
    *,
    speculate: bool = True,
) -> AsyncIterator[Result]:
    """The answers in the order of the prompts, with these seeds if given; raises `ClientError`, and
    `BadInput` for a system prompt where there is no chat."""
    chat = not questions.raw and (await client.models())[0].has_chat_template
    if not chat and not questions.raw and not seeds:
        print(NO_TEMPLATE, file=sys.stderr)
    if questions.system is not None and not chat:
        raise BadInput("--system needs a model with a chat template, and no --raw.")
    for number, text in enumerate(questions.prompts):
        prompt: Prompt = _turns(questions.system, text) if chat else text
        sampling = questions.sampling
        if seeds:
            sampling = dataclasses.replace(sampling, seed=seeds[number])
        options = Options(sampling=sampling, max_tokens=questions.max_tokens, stop=questions.stop)
        if questions.prediction is not None:
            options["prediction"] = questions.prediction
        if not (speculate and questions.speculate):
            options["speculate"] = False
        screen.begin(text)
        yield await _stream(client, prompt, options, screen)


def _turns(system: str | None, text: str) -> list[Message]:
    before = [] if system is None else [Message("system", system)]
    return [*before, Message("user", text)]


async def _stream(client: AsyncClient, prompt: Prompt, options: Options, screen: Screen) -> Result:
    async with client.generate(prompt, **options) as stream:
        async for chunk in stream:
            screen.chunk(chunk)
        screen.end()
        return stream.result
