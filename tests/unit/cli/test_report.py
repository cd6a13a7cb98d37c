"""What people see: summaries, profiles, progress."""

import io
import sys
from dataclasses import replace

import pytest
from rich.console import Console

from outrider.cli.profile import measure as profile
from outrider.cli.run import report
from outrider.cli.run.answers import Answers, PromptAnswer
from outrider.client import Chunk, FinishReason
from tests.unit.cli.test_figures import result

SERVICE = """
apiVersion: outrider.dev/v1alpha1
kind: SpeculativeService
metadata: {name: tiny}
spec:
  target: {model: {uri: "package://p/target.gguf"}}
  draft: {model: {uri: "file:///draft"}}
"""


def shown(*printed: object) -> str:
    console = Console(file=io.StringIO(), width=100)
    console.print(*printed)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def summary(*answers: PromptAnswer) -> str:
    console = Console(file=io.StringIO(), width=100)
    found = Answers(answers, "Colocated, 2 threads")
    report.summary(console, found)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_a_summary_names_each_figure() -> None:
    text = summary(PromptAnswer("why?", result()))
    for words in ("8.0", "2.00", "acceptance rate", "12%", "1.60x", "75%", "250 ms"):
        assert words in text


def test_answers_that_were_cut_are_counted() -> None:
    whole = PromptAnswer("why?", result())
    cut = PromptAnswer("how?", replace(result(), finish_reason=FinishReason.LENGTH))
    assert "--max-tokens or the context: 1 of 2 answers" in summary(whole, cut)
    assert "Cut" not in summary(whole)


@pytest.mark.parametrize(("hits", "useless"), [(0, True), (3, True), (4, False), (32, False)])
def test_a_draft_that_is_of_no_use_is_said(hits: int, useless: bool) -> None:
    one = result()
    answer = PromptAnswer(
        "why?", replace(one, usage=replace(one.usage, first_guesses=64, first_hits=hits))
    )
    assert ("of no use" in summary(answer, answer)) is useless
    assert "of no use" not in summary(answer), "64 guesses are too few to judge"


def test_text_with_markup_is_shown_as_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    screen = report.screen(Console(file=sys.stdout), several=True)
    screen.begin("[bold]why[/]?")
    screen.chunk(Chunk("[red]because[/]", (1, 2)))
    screen.end()
    assert capsys.readouterr().out == "\n> [bold]why[/]?\n[red]because[/]\n"


def test_a_profile_shows_costs_by_rows_and_threads_and_the_advice() -> None:
    table = {"rows": [1], "contexts": [128, 512], "batches": [1], "seconds": [[[0.004], [0.007]]]}
    costs = {
        "1": {"rows": {"1": 0.010, "16": 0.025}, "step_costs": table},
        "2": {"rows": {"1": 0.006}, "step_costs": table},
    }
    advice = {"placement": "Separate", "threads": {"target": 1, "draft": 1}}
    text = shown(profile.render({"target": costs, "draft": costs, "recommendation": advice}))
    for words in ("target: one pass", "draft: one pass", "2 threads", "25.00 ms", "7.00 ms"):
        assert words in text
    assert "threads target" in text
    assert "Separate" in text
