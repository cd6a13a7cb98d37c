"""The demo's pair as a simulation, for `simulate`: host time and acceptance as counted."""

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from outrider.contract.counters import Counters
from outrider.kernels.sampling.draft_scores import DraftScorer, children_of
from outrider.kernels.sampling.gumbel_max import Sampler
from outrider.simulator.description import Simulation
from outrider.simulator.figures import CellFigures, cell_figures
from outrider.simulator.run import run_cell
from outrider.worker.draft.session import BRANCH
from outrider.worker.sampling.params import SamplingParams

GREEDY = SamplingParams()

SECONDS = 40.0
"""Virtual seconds of a try of an acceptance."""
SWEEPS = 2
"""Times that each of a pair's figures is looked for; each depends a little on the other."""
TRIES = 5
"""Steps of a bisection."""
SECONDS_CHILDREN = (0.02, 0.45)
"""Least and largest `second` that is tried."""
SHARES = (0.0, 1.0)
"""Least and largest `passageShare` that is tried."""
SPREAD = 4.0
"""With less, answers of 64 tokens do not differ as much as the real pair's."""
ROWS = 16
REPEATS = 40
THREADS = 1
"""Of a pass: the other processor is the server's and the client's, whose share the simulator does
not know."""
WHOLE_TEXT = 1024
"""Tokens that no prompt and answer have together: some requests are easier than others."""
NODES_AHEAD = 24
"""As in examples/smollm2.yaml."""


@dataclass(frozen=True, slots=True)
class StepSeconds:
    """Where the time of one step of the target goes."""

    passes: float
    """Of the target: forward pass and sampling."""
    drafting: float
    """Passes of the draft."""
    host: float
    """Between passes of either."""

    @classmethod
    def of(cls, counters: Counters, host: float) -> "StepSeconds":
        """Return the means of a run; `host`: seconds between all its passes."""
        passes = counters.spent_seconds - counters.drafting_seconds - host
        return cls(*(x / counters.steps for x in (passes, counters.drafting_seconds, host)))


@dataclass(frozen=True, slots=True)
class Observed:
    """One measured run."""

    seconds: float
    """From the end of the requests that began together to that of the last one counted."""
    latencies: tuple[float, ...]
    """As clients saw them."""
    insides: tuple[float, ...]
    """Of them, the seconds in the engine."""
    firsts: tuple[float, ...]
    """Of these, until the first token."""
    prompts: tuple[int, ...]
    """Tokens of each prompt."""
    tokens: int
    """Of each answer."""
    counters: Counters
    """What the target counted meanwhile."""

    @property
    def step(self) -> StepSeconds:
        """Where the time of a step went."""
        return StepSeconds.of(self.counters, self.counters.host_seconds)

    @property
    def host_seconds(self) -> float:
        """Host time for each step of the target, its draft's passes included."""
        return self.step.host

    @property
    def server_seconds(self) -> float:
        """Time of a request outside of the engine: client, server, and the way between them."""
        return sum(self.latencies) / len(self.latencies) - sum(self.insides) / len(self.insides)

    @property
    def hit_rate(self) -> float:
        """How often the draft's likeliest next token was right."""
        return self.counters.first_hits / max(1, self.counters.first_guesses)

    @property
    def accepted_per_draft(self) -> float:
        """Accepted rows of a pass that had any: how the pair does, whenever it is asked."""
        return self.counters.accepted_rows / max(1, self.counters.drafted_passes)

    @property
    def variation(self) -> float:
        """Of the seconds in the engine: some prompts are easier for the draft than others."""
        return variation(self.insides)

    @property
    def decoding_variation(self) -> float:
        """Of these after the first token: without drafts, the machine's alone."""
        return variation([a - b for a, b in zip(self.insides, self.firsts, strict=True)])


@dataclass(frozen=True, slots=True)
class RowTimes:
    """Seconds that a row takes beside the forward pass that step costs are of."""

    sampled: float
    """A row of the target."""
    children: float
    """A row of the draft."""


@dataclass(frozen=True, slots=True)
class MoreSeconds:
    """What passes take in the service beyond the least that each took alone: there they share
    caches and processors with each other, with the server and with the client."""

    target: float = 0.0
    """Of a pass of the target;"""
    sequence: float = 0.0
    """of it, for each sequence."""
    draft: float = 0.0
    """Of a pass of the draft."""

    def corrected(
        self, measured: Mapping[int, StepSeconds], simulated: Mapping[int, StepSeconds]
    ) -> "MoreSeconds":
        """Return what makes simulated runs as slow as measured ones, as far as that goes: by the
        fewest and the most requests at once."""
        few, many = min(measured), max(measured)
        missing = {n: measured[n].passes - simulated[n].passes for n in (few, many)}
        each = (missing[many] - missing[few]) / (many - few)
        drafting = measured[few].drafting - simulated[few].drafting
        return MoreSeconds(
            self.target + missing[few] - few * each,
            self.sequence + each,
            self.draft + DRAFT_DAMPING * drafting,
        )


NO_MORE = MoreSeconds()
DRAFT_DAMPING = 0.5
"""A step has one pass of the draft or a few; how many is not known."""


def host_time(observed: Mapping[int, Observed]) -> tuple[float, float]:
    """Return microseconds of host time of a step, and of each sequence more.

    By the fewest and the most requests at once; what lies between is foretold.
    """
    few, many = min(observed), max(observed)
    each = (observed[many].host_seconds - observed[few].host_seconds) / (many - few)
    each = max(0.0, each)
    return 1e6 * max(0.0, observed[few].host_seconds - few * each), 1e6 * each


def described(
    at_once: int,
    pair: Mapping[str, float],
    observed: Mapping[int, Observed],
    rows: RowTimes,
    seconds: float,
    more: MoreSeconds = NO_MORE,
    variation: float = 0.0,
) -> Simulation:
    """Return the simulation of so many requests at once; step costs are in `costs.json`.

    `variation`: of equal passes, from a few seconds to the next.
    """
    host, each = host_time(observed)
    costs: dict[str, Any] = {
        "profile": "costs.json",
        "threads": THREADS,
        "variation": variation,
        "rowMicroseconds": 1e6 * rows.sampled,
        "passMicroseconds": 1e6 * more.target,
        "passMicrosecondsPerSequence": 1e6 * more.sequence,
    }
    draft_costs = costs | {
        "rowMicroseconds": 1e6 * rows.children,
        "passMicroseconds": 1e6 * more.draft,
        "passMicrosecondsPerSequence": 0.0,
    }
    beside = {"hostMicroseconds": host, "hostMicrosecondsPerSequence": each}
    worker = {"maxRunning": max(observed), "maxContext": 2048, "gpus": 0, "kvTokens": 65_536}
    return Simulation.model_validate(
        {
            "seconds": seconds,
            "seed": 1,
            "pair": dict(pair),
            "target": worker
            | {
                "costs": costs | beside,
                "serverMicroseconds": 1e6 * observed[min(observed)].server_seconds,
            },
            "draft": worker
            | {
                "placement": "Colocated",
                "costs": draft_costs,
            },
            "speculation": {
                "mode": "Static",
                "nodesAhead": NODES_AHEAD,
                "sources": ["Draft"],
            },
            "traffic": {
                "concurrency": at_once,
                "promptTokens": {"values": observed[at_once].prompts},
                "answerTokens": {"mean": observed[at_once].tokens},
            },
        }
    )


def fitted(
    observed: Mapping[int, Observed], rows: RowTimes, folder: Path, machine: float
) -> dict[str, float]:
    """Return the pair whose hit rate is the measured one, whose further children are right so
    often that a pass with nodes accepts as many, and whose requests differ so much that answers
    do; all at the fewest requests at once. `machine`: variation of equal passes."""
    alone = observed[min(observed)]
    pair = {
        "hitRate": alone.hit_rate,
        "spread": SPREAD,
        "passageShare": sum(SHARES) / 2,
        "second": sum(SECONDS_CHILDREN) / 2,
        "passageTokens": WHOLE_TEXT,
    }

    def tried() -> CellFigures:
        wanted = described(min(observed), pair, observed, rows, SECONDS, variation=machine)
        return cell_figures(run_cell(wanted, folder))

    def too_few_accepted() -> bool:
        sums = tried().counters
        return sums["accepted_rows"] < alone.accepted_per_draft * sums["drafted_passes"]

    def too_much_alike() -> bool:
        return variation(tried().latencies) < alone.variation

    for _ in range(SWEEPS):
        _bisect(pair, "second", SECONDS_CHILDREN, too_few_accepted)
        _bisect(pair, "passageShare", SHARES, too_much_alike)
    return pair


def _bisect(
    pair: dict[str, float], name: str, bounds: tuple[float, float], too_low: Callable[[], bool]
) -> None:
    """Set a figure of the pair to where it is no longer too low."""
    low, high = bounds
    for _ in range(TRIES):
        pair[name] = (low + high) / 2
        low, high = (pair[name], high) if too_low() else (low, pair[name])
    pair[name] = (low + high) / 2


def variation(values: Sequence[float]) -> float:
    """Return the standard deviation of some values over their mean."""
    return statistics.pstdev(values) / statistics.fmean(values)


def row_times(vocabulary: int, outputs: int) -> RowTimes:
    """Return what a row takes beside its pass; the least of many, over random logits: of the whole
    vocabulary for the target, of `outputs` of its tokens for the draft."""
    random_numbers = np.random.default_rng(1)
    logits = random_numbers.normal(size=(ROWS, vocabulary)).astype(np.float32)
    few = np.ascontiguousarray(logits[:, :outputs])
    positions, sampled = np.full(ROWS, 100, np.int32), np.arange(ROWS, dtype=np.int32)
    tokens = np.empty(ROWS, np.int32)
    sampler = Sampler(vocabulary)
    scorer = DraftScorer(np.arange(outputs, dtype=np.int32), vocabulary, 0.0)
    rules, out = scorer.rules(GREEDY, 1.0, None), children_of(ROWS, BRANCH)
    return RowTimes(
        _least(lambda: sampler.sample_after(logits, positions, sampled, GREEDY, tokens)) / ROWS,
        _least(lambda: scorer.score(few, positions, rules, BRANCH, out)) / ROWS,
    )


def _least(work: Callable[[], object]) -> float:
    """Return the least seconds of some calls; the first ones compile."""
    seconds = []
    for _ in range(REPEATS):
        began = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - began)
    return min(seconds)
