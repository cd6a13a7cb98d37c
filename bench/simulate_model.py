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

SECONDS = 30.0
"""Virtual seconds of a try of an acceptance."""
SWEEPS = 2
"""Times that each of a pair's figures is looked for; each depends a little on the other."""
TRIES = 5
"""Steps of a bisection."""
SECONDS_CHILDREN = (0.02, 0.45)
"""Least and largest `second` that is tried."""
SPREADS = (0.0, 4.0)
"""Least and largest `spread` that is tried."""
ROWS = 16
REPEATS = 40
THREADS = 1
"""Of a pass: the other processor is the server's and the client's, whose share the simulator does
not know."""
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
    """Until the last of the requests that are counted had ended."""
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


@dataclass(frozen=True, slots=True)
class RowTimes:
    """Seconds that a row takes beside the forward pass that step costs are of."""

    sampled: float
    """A row of the target."""
    children: float
    """A row of the draft."""


@dataclass(frozen=True, slots=True)
class Slowdown:
    """What passes of both models take in the service, over the least that each took alone: there
    they share caches and processors with each other, with the server and with the client."""

    target: float = 1.0
    draft: float = 1.0

    def corrected(self, measured: StepSeconds, simulated: StepSeconds) -> "Slowdown":
        """Return what makes a simulated run as slow as the measured one, as far as that goes."""
        drafting = measured.drafting / simulated.drafting if simulated.drafting > 0 else 1.0
        return Slowdown(
            _bounded(self.target * measured.passes / simulated.passes),
            _bounded(self.draft * drafting),
        )


NO_SLOWDOWN = Slowdown()
LEAST_SLOWDOWN, MOST_SLOWDOWN = 0.1, 100.0
"""That a description may say."""


def _bounded(slowdown: float) -> float:
    return min(max(slowdown, LEAST_SLOWDOWN), MOST_SLOWDOWN)


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
    slowdown: Slowdown = NO_SLOWDOWN,
) -> Simulation:
    """Return the simulation of so many requests at once; step costs are in `costs.json`."""
    host, each = host_time(observed)
    sizes = [size for one in observed.values() for size in one.prompts]
    mean = sum(sizes) / len(sizes)
    deviation = (sum((size - mean) ** 2 for size in sizes) / len(sizes)) ** 0.5
    costs: dict[str, Any] = {"profile": "costs.json", "threads": THREADS}
    beside = {"hostMicroseconds": host, "hostMicrosecondsPerSequence": each}
    worker = {"maxRunning": max(observed), "maxContext": 2048, "gpus": 0, "kvTokens": 65_536}
    return Simulation.model_validate(
        {
            "seconds": seconds,
            "seed": 1,
            "pair": dict(pair),
            "target": worker
            | {
                "costs": costs
                | beside
                | {"rowMicroseconds": 1e6 * rows.sampled, "slowdown": slowdown.target},
                "serverMicroseconds": 1e6 * observed[min(observed)].server_seconds,
            },
            "draft": worker
            | {
                "placement": "Colocated",
                "costs": costs
                | {"rowMicroseconds": 1e6 * rows.children, "slowdown": slowdown.draft},
            },
            "speculation": {
                "mode": "Static",
                "nodesAhead": NODES_AHEAD,
                "sources": ["Draft"],
            },
            "traffic": {
                "concurrency": at_once,
                "promptTokens": {"mean": mean, "variation": deviation / mean, "most": 1024},
                "answerTokens": {"mean": observed[at_once].tokens},
            },
        }
    )


def fitted(observed: Mapping[int, Observed], rows: RowTimes, folder: Path) -> dict[str, float]:
    """Return the pair whose hit rate is the measured one, whose further children are right so
    often that a pass with nodes accepts as many, and whose contexts differ so much that answers
    do; all at the fewest requests at once."""
    alone = observed[min(observed)]
    pair = {"hitRate": alone.hit_rate, "spread": 1.0, "second": sum(SECONDS_CHILDREN) / 2}

    def tried() -> CellFigures:
        return cell_figures(
            run_cell(described(min(observed), pair, observed, rows, SECONDS), folder)
        )

    def too_few_accepted() -> bool:
        sums = tried().counters
        return sums["accepted_rows"] < alone.accepted_per_draft * sums["drafted_passes"]

    def too_much_alike() -> bool:
        return variation(tried().latencies) < alone.variation

    for _ in range(SWEEPS):
        _bisect(pair, "second", SECONDS_CHILDREN, too_few_accepted)
        _bisect(pair, "spread", SPREADS, too_much_alike)
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
