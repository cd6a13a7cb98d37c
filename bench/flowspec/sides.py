"""The sides of `bench.flowspec`, each with the sizes that suit it best.

A side is measured on the same texts as the others. The paper's own sizes are among those that are
tried; `paper` names the outcome with them.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from bench.flowspec.draft_tree import best_tree
from bench.flowspec.language import Language
from bench.flowspec.leader_host import (
    PROMPT,
    ContinuousLeader,
    PlainLeader,
    RoundSizes,
    RoundsLeader,
)
from bench.flowspec.lock_step import INITIAL_NODES, FlowSpec, LayerAStep, Pruned
from bench.flowspec.outcome import Outcome
from bench.flowspec.setting import Seconds, Setting
from bench.flowspec.tensor import Run, TensorParallel, tensor_parallel
from outrider.worker.pipeline.segment_size import SegmentPlan, plan_segments
from outrider.worker.tree.walk import ROOT

PROMPT_ROWS = 64
REACH_DEPTH = 8
REACH_NODES = 256


Make = Callable[[Setting, Language], Run]


@dataclass(frozen=True, slots=True)
class Figures:
    """Of one side with certain sizes, over all texts."""

    note: str
    tokens_per_second: float
    busy: float
    """Share of the time for which stages compute, on average."""
    bytes_per_token: float
    rows_per_token: float
    tokens_per_commit: float
    same_text: bool
    """The text is the one of plain decoding."""

    @classmethod
    def of(cls, outcomes: Sequence[Outcome], languages: Sequence[Language]) -> "Figures":
        """Join the outcomes of all texts."""
        tokens = sum(one.tokens for one in outcomes)
        both = zip(outcomes, languages, strict=True)
        return cls(
            note=outcomes[0].note,
            tokens_per_second=tokens / sum(one.seconds for one in outcomes),
            busy=float(np.mean([one.busy for one in outcomes])),
            bytes_per_token=sum(one.bytes for one in outcomes) / tokens,
            rows_per_token=float(np.mean([one.rows_per_token for one in outcomes])),
            tokens_per_commit=tokens / sum(one.commits for one in outcomes),
            same_text=all(np.array_equal(o.text, lang.text[PROMPT:]) for o, lang in both),
        )


def plain(setting: Setting, language: Language) -> Run:
    """Return decoding without drafts."""
    return PlainLeader(setting, language, SegmentPlan(1, 1, PROMPT_ROWS))


def continuous(setting: Setting, language: Language) -> Run:
    """Return this project's pipeline, planned from the setting's times and the draft's guesses."""
    plan = plan_segments(setting.times(), reach_of(language), PROMPT_ROWS)
    return ContinuousLeader(setting, language, plan)


def rounds(chunk: int, nodes: int, depth: int) -> Make:
    """Return chunked speculation in rounds."""
    return lambda setting, language: RoundsLeader(
        setting, language, RoundSizes(chunk, nodes, depth)
    )


def pruned(segment: int, nodes: int) -> Make:
    return lambda setting, language: Pruned(setting, language, segment, nodes)


def flowspec(segment: int, nodes: int, depth: int) -> Make:
    return lambda setting, language: FlowSpec(setting, language, segment, nodes, depth)


def tensor(make: Make) -> Make:
    """Return a side over a target that the same devices compute layer by layer together."""
    return lambda setting, language: TensorParallel(
        make(tensor_parallel(setting), language), setting
    )


def layer_a_step(width: int) -> Make:
    return lambda setting, language: LayerAStep(setting, language, width)


PAPER = {
    "rounds": rounds(16, INITIAL_NODES, 6),
    "pruned": pruned(16, INITIAL_NODES),
    "flowspec": flowspec(16, INITIAL_NODES, 6),
    "layer_a_step": layer_a_step(16),
}
"""With the sizes of FlowSpec's code."""
TRIED: dict[str, Sequence[Make]] = {
    "plain": [plain],
    "rounds": [
        PAPER["rounds"],
        *(rounds(*sizes) for sizes in ((4, 3, 2), (4, 7, 3), (8, 15, 4), (16, 31, 5))),
        *(rounds(*sizes) for sizes in ((32, 31, 5), (32, 63, 6), (64, 63, 6), (32, 95, 6))),
    ],
    "pruned": [PAPER["pruned"], pruned(2, 16), pruned(4, 24), pruned(32, INITIAL_NODES)],
    "flowspec": [
        PAPER["flowspec"],
        flowspec(2, 16, 3),
        flowspec(4, 24, 4),
        flowspec(16, INITIAL_NODES, 4),
        flowspec(32, INITIAL_NODES, 6),
    ],
    "layer_a_step": [PAPER["layer_a_step"], *map(layer_a_step, (2, 4, 8))],
    "continuous": [continuous],
}
"""Makers of each side; the fastest counts."""
TENSOR = [
    tensor(plain),
    *(tensor(rounds(*sizes)) for sizes in ((4, 3, 2), (8, 7, 3), (16, 15, 4), (32, 31, 5))),
]
"""Likewise, of a target that is cut the other way."""


@dataclass(frozen=True, slots=True)
class Cell:
    """All sides in one setting."""

    setting: str
    stages: int
    links: str
    best: dict[str, Figures]
    paper: dict[str, Figures]
    """Figures of the paper's sides, with the paper's sizes."""

    def ratio(self, side: str, of: str, paper: bool = False) -> float:
        """Return how many times faster one side is than another one."""
        other = (self.paper if paper else self.best)[of]
        return self.best[side].tokens_per_second / other.tokens_per_second


def measure(setting: Setting, languages: Sequence[Language]) -> Cell:
    """Run every side with every size."""
    best: dict[str, Figures] = {}
    paper: dict[str, Figures] = {}
    for side, makers in TRIED.items():
        found = [figures(make, setting, languages) for make in makers]
        best[side] = max(found, key=lambda one: one.tokens_per_second)
        if side in PAPER:
            paper[side] = found[0]
    return Cell(setting.name, setting.count, str(setting.links), best, paper)


def figures(make: Make, setting: Setting, languages: Sequence[Language]) -> Figures:
    """Run one side on all texts."""
    outcomes = [make(setting, language).run() for language in languages]
    return Figures.of(outcomes, languages)


def reach_of(language: Language, every: int = 16) -> Seconds:
    """Return the mean probability that a walk reaches the n-th likeliest node, the root's first.

    float64[1 + `REACH_NODES`], by the draft's own log-probabilities, which it knows as it decodes.
    """
    positions = range(PROMPT, len(language.text), every)
    reach = [np.exp(list(_scores(language, language.keys[at]))) for at in positions]
    found: Seconds = np.concatenate([[1.0], np.mean(reach, axis=0)])
    return found


def _scores(language: Language, root: int) -> Iterator[float]:
    """Yield the scores of the best nodes below a path, falling."""
    tree = best_tree(language, root, REACH_NODES, REACH_DEPTH)
    scores = {ROOT: 0.0}
    for node, parent in enumerate(tree.parents.tolist()):
        scores[node] = scores[parent] + float(tree.logprobs[node])
        yield scores[node]
