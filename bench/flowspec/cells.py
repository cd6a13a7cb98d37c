"""Cells of the sweep of `bench.flowspec`: one setting each, which any process can measure."""

from typing import NamedTuple

from bench.flowspec.language import Guesses, Language, drawn_guesses, pair_guesses
from bench.flowspec.leader_host import PROMPT
from bench.flowspec.setting import Links, demo, jetson_7b, jetson_13b
from bench.flowspec.sides import TENSOR, Cell, Figures, continuous, figures, measure

SURENESS = 0.5
"""Sureness of a draft whose rounds, with the paper's sizes, write what the paper's Chunk-PP
writes."""
MAKERS = {"jetson 7B": jetson_7b, "jetson 13B": jetson_13b, "demo": demo}


class Job(NamedTuple):
    """One cell of the sweep."""

    setting: str
    stages: int
    links: Links
    tokens: int
    texts: int


def guesses_of(setting: str) -> Guesses:
    """Return what a setting's draft guesses: recorded from the demo's pair, or drawn."""
    return pair_guesses() if setting == "demo" else drawn_guesses(SURENESS)


def languages(guesses: Guesses, tokens: int, texts: int) -> list[Language]:
    """Return texts, the same for all sides."""
    return [Language.of(guesses, PROMPT + tokens, seed) for seed in range(1, texts + 1)]


def cell(job: Job) -> Cell:
    """Measure all sides in one setting."""
    setting = MAKERS[job.setting](job.stages, job.links)
    return measure(setting, languages(guesses_of(job.setting), job.tokens, job.texts))


def cut_both_ways(job: Job) -> tuple[Job, Figures, Figures]:
    """Measure this project's pipeline, and tensor parallelism with the sizes that suit it best."""
    setting = MAKERS[job.setting](job.stages, job.links)
    texts = languages(guesses_of(job.setting), job.tokens, job.texts)
    others = [figures(make, setting, texts) for make in TENSOR]
    best = max(others, key=lambda one: one.tokens_per_second)
    return job, figures(continuous, setting, texts), best
