"""The user's prompts, asked of a target one after the other, with pieces as they come.

What is shown, and how, is left to `report` and the commands.
"""

import dataclasses
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field

from outrider.client import AsyncClient, Message, Options, Prompt, Result, Sampling


@dataclass(frozen=True, slots=True, kw_only=True)
class Questions:
    """Prompts and the options of their requests."""

    prompts: Sequence[str]
    """One answer for each."""
    sampling: Sampling = field(default_factory=Sampling)
    """Sampling params."""
    max_tokens: int | None = None
    """Most tokens of each answer; None takes the target's default."""
    raw: bool = False
    """Text as it is, even where the model has a chat template."""
    compare: bool = False
    """Ask each prompt a second time, with the same seed and without the draft."""


@dataclass(frozen=True, slots=True)
class Answer:
    """One prompt's answer, and the plain one if it was asked for."""

    prompt: str
    drafted: Result
    plain: Result | None = None


@dataclass(frozen=True, slots=True)
class Screen:
    """Where an answer goes while it comes."""

    begin: Callable[[str, bool], None]
    """A prompt's answer begins; True: the plain one."""
    text: Callable[[str], None]
    """A piece of its text."""
    end: Callable[[], None]
    """It is whole."""


SILENT = Screen(lambda prompt, plain: None, lambda text: None, lambda: None)


async def ask(client: AsyncClient, questions: Questions, screen: Screen) -> AsyncIterator[Answer]:
    """The answers in the order of the prompts; raises `ClientError`."""
    chat = not questions.raw and (await client.models())[0].has_chat_template
    for text in questions.prompts:
        prompt: Prompt = [Message("user", text)] if chat else text
        screen.begin(text, False)
        drafted = await _stream(client, prompt, _options(questions, questions.sampling), screen)
        plain = None
        if questions.compare:
            screen.begin(text, True)
            sampling = dataclasses.replace(questions.sampling, seed=drafted.seed)
            options = _options(questions, sampling)
            options["speculate"] = False
            plain = await _stream(client, prompt, options, screen)
        yield Answer(text, drafted, plain)


def _options(questions: Questions, sampling: Sampling) -> Options:
    return Options(sampling=sampling, max_tokens=questions.max_tokens)


async def _stream(client: AsyncClient, prompt: Prompt, options: Options, screen: Screen) -> Result:
    async with client.generate(prompt, **options) as stream:
        async for chunk in stream:
            screen.text(chunk.text)
        screen.end()
        return stream.result
