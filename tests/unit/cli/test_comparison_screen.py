"""The screen of a comparison: two speeds, each answer once, and the verdict at the end."""

import io

import pytest
from rich.console import Console

from outrider.cli.run.comparison_screen import Comparison, reason, verdict
from outrider.client import Chunk


@pytest.mark.parametrize(
    ("ratio", "words"),
    [
        (1.63, "1.6x faster"),
        (0.5, "2.0x slower"),
        (1.02, "As fast"),
        (0.97, "As fast"),
        (None, "Too short"),
    ],
)
@pytest.mark.parametrize("same", [True, False])
def test_a_loss_is_said_in_the_words_of_a_gain(ratio: float | None, words: str, same: bool) -> None:
    said = verdict(ratio, 32, same)
    assert said.startswith(words)
    assert ("identical" in said, "DIFFERENT" in said) == (same, not same)


def test_a_few_tokens_are_too_short_to_compare() -> None:
    assert verdict(1.63, 31, same_text=True).startswith("Too short")


def test_a_draft_that_auto_took_and_that_lost_wants_a_profile() -> None:
    said = {
        (ratio, auto): verdict(ratio, 64, True, auto)
        for ratio in (0.5, 2.0)
        for auto in (False, True)
    }
    assert [key for key, words in said.items() if "outrider profile" in words] == [(0.5, True)]


class Clock:
    """Seconds that a test sets."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


def shown(comparison: Comparison) -> list[str]:
    console = Console(file=io.StringIO(), width=80, height=24)
    with comparison.on(console):
        pass
    assert isinstance(console.file, io.StringIO)
    text = console.file.getvalue()
    assert text.endswith("\n")
    return text.rstrip().splitlines()


def test_both_speeds_count_from_each_answers_first_tokens_and_texts_are_shown_once() -> None:
    clock = Clock()
    comparison = Comparison.between("Colocated, 1 thread", "plain, 2 threads", clock)
    drafted = comparison.screen(drafted=True, shown=True)
    plain = comparison.screen(drafted=False, shown=False)
    for prompt in ("[bold]why?", "how?\nso"):
        for side, seconds in ((drafted, 0.5), (plain, 1.0)):
            side.begin(prompt)
            clock.now += 7.0  # until the first token
            side.chunk(Chunk("so", (1,)))
            clock.now += seconds
            side.chunk(Chunk(" it is", (2, 3)))
            side.end()
    comparison.said = verdict(2.0, 64, same_text=True)
    comparison.why = reason(2.5, 0.75)
    lines = shown(comparison)
    assert [line.rstrip() for line in lines].count(comparison.said) == 1
    assert lines[-1].rstrip() == comparison.said
    assert [number for number, line in enumerate(lines) if "tokens/s" in line] == [
        len(lines) - 4,
        len(lines) - 3,
    ], "both speeds are still on the screen after long answers"
    rates = [line for line in lines if "tokens/s" in line]
    assert ["Colocated, 1 thread" in rates[0], "4.0 tokens/s" in rates[0]] == [True, True]
    assert ["plain, 2 threads" in rates[1], "2.0 tokens/s" in rates[1]] == [True, True]
    text = "\n".join(lines)
    assert "2.50 tokens per pass, acceptance rate 75%" in text
    assert (text.count("so it is"), text.count("[bold]why?"), text.count("how? …")) == (2, 1, 1)


def test_the_last_screen_has_the_speeds_that_the_verdict_compares() -> None:
    comparison = Comparison.between("Separate", "plain", Clock())
    for side, measured in zip(comparison.sides, (30.0, 20.0), strict=True):
        side.measured = measured
    comparison.said = verdict(1.5, 64, same_text=True)
    rates = [line for line in shown(comparison) if "tokens/s" in line]
    assert ["30.0 tokens/s" in rates[0], "20.0 tokens/s" in rates[1]] == [True, True]
