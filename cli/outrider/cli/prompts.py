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
    """Ask each prompt a second time, with the same seed: without the draft, or, where the first
    answers came without one, with it."""


@dataclass(frozen=True, slots=True)
class Screen:
    """Where an answer goes while it comes."""

    begin: Callable[[str], None]
    """A prompt's answer begins."""
    text: Callable[[str], None]
    """A piece of its text."""
    end: Callable[[], None]
    """It is whole."""


SILENT = Screen(lambda prompt: None, lambda text: None, lambda: None)


async def ask(
    client: AsyncClient,
    questions: Questions,
    screen: Screen,
    seeds: Sequence[int] = (),
    *,
    speculate: bool = True,
) -> AsyncIterator[Result]:
    """The answers in the order of the prompts, with these seeds if given; raises `ClientError`."""
    chat = not questions.raw and (await client.models())[0].has_chat_template
    for number, text in enumerate(questions.prompts):
        prompt: Prompt = [Message("user", text)] if chat else text
        sampling = questions.sampling
        if seeds:
            sampling = dataclasses.replace(sampling, seed=seeds[number])
        options = Options(sampling=sampling, max_tokens=questions.max_tokens)
        if not speculate:
            options["speculate"] = False
        screen.begin(text)
        yield await _stream(client, prompt, options, screen)


async def _stream(client: AsyncClient, prompt: Prompt, options: Options, screen: Screen) -> Result:
    async with client.generate(prompt, **options) as stream:
        async for chunk in stream:
            screen.text(chunk.text)
        screen.end()
        return stream.result
