"""Figures of a simulation: what its cells came to, scaled to the whole service. Plain data.

Leaves running cells to `run`, and showing figures to the command line.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from outrider.contract.counters import Counters
from outrider.simulator.description import Simulation
from outrider.simulator.run import CellRun
from outrider.simulator.series import Point
from outrider.worker.messages import Finish

SUMMED = (
    "tokens", "passes", "draft_rows", "accepted_rows", "plain_seconds", "spent_seconds",
    "preemptions", "prompt_tokens", "cached_prompt_tokens", "generation_tokens", "drafted_passes",
    "first_guesses", "first_hits", "steps", "step_rows", "blind_passes", "resting_passes",
    "draft_wait_seconds",
)  # fmt: skip
"""Counters of targets that are added up over them."""


@dataclass(frozen=True, slots=True)
class CellFigures:
    """One cell, as it is sent from its process."""

    arrived: int
    refused: int
    too_long: int
    expired: int
    latencies: list[float]
    """Seconds of answers, from arrival to the last token."""
    first_tokens: list[float]
    """Seconds of answers, from arrival to the first token."""
    per_token: list[float]
    """Seconds of each further token, of answers of two tokens and more."""
    counters: dict[str, float]
    """Counters summed over targets."""
    target_busy_seconds: float
    draft_busy_seconds: float
    draft_passes: int
    draft_seconds: float
    """Sum over drafts of the seconds for which their hardware was held."""
    switches: int
    sentences: list[tuple[float, str]]
    points: list[Point]
    wall_seconds: float
    events: int


def cell_figures(run: CellRun) -> CellFigures:
    """Return the figures of a cell that has been run."""
    cell, clients, now = run.cell, run.clients, run.cell.clock.now
    answered = [a for a in clients.answers if a.message.finish in (Finish.LENGTH, Finish.STOP)]
    way = run.simulation.target.server_microseconds / 1e6
    timings = [(one.message.timing, one.message.usage.completion_tokens) for one in answered]
    counters = [target.scheduler.stats.counters for target in cell.targets]
    drafts = cell.drafts
    return CellFigures(
        arrived=clients.arrived,
        refused=clients.refused,
        too_long=clients.too_long,
        expired=sum(answer.message.finish is Finish.EXPIRED for answer in clients.answers),
        latencies=[one.seconds for one in answered],
        first_tokens=[way + timing.first_token_seconds for timing, _ in timings],
        per_token=[timing.decode_seconds / (n - 1) for timing, n in timings if n > 1],
        counters=_summed(counters),
        target_busy_seconds=sum(target.engine.busy_seconds for target in cell.targets),
        draft_busy_seconds=sum(draft.engine.busy_seconds for draft in drafts),
        draft_passes=sum(draft.engine.passes for draft in drafts),
        draft_seconds=sum(_until(draft.ended_at, now) - draft.asked_at for draft in drafts),
        switches=run.control_loop.switches,
        sentences=run.control_loop.sentences,
        points=run.recorder.points,
        wall_seconds=run.wall_seconds,
        events=cell.clock.events,
    )


def _until(ended_at: float | None, now: float) -> float:
    return now if ended_at is None else ended_at


def _summed(counters: Iterable[Counters]) -> dict[str, float]:
    every = list(counters)
    return {name: float(sum(getattr(one, name) for one in every)) for name in SUMMED}


def summary(simulation: Simulation, cells: Sequence[CellFigures]) -> dict[str, Any]:
    """Return what the cells say of the whole service; rates and costs are of the whole."""
    scale = simulation.target.replicas / (simulation.cell_targets * len(cells))
    sums = {name: sum(cell.counters[name] for cell in cells) for name in SUMMED}
    rates = [cell.counters["generation_tokens"] / simulation.seconds for cell in cells]
    return {
        "seconds": simulation.seconds,
        "targets": simulation.target.replicas,
        "simulated_targets": simulation.cell_targets * len(cells),
        "gpus": _gpus(simulation),
        "requests": {
            name: round(scale * sum(getattr(cell, name) for cell in cells))
            for name in ("arrived", "refused", "too_long", "expired")
        }
        | {"answered": round(scale * sum(len(cell.latencies) for cell in cells))},
        "tokens_per_second": scale * sum(rates),
        "tokens_per_second_error": _standard_error(rates) * simulation.target.replicas
        / simulation.cell_targets,
        "latency_seconds": spread(x for cell in cells for x in cell.latencies),
        "first_token_seconds": spread(x for cell in cells for x in cell.first_tokens),
        "seconds_per_token": spread(x for cell in cells for x in cell.per_token),
        "speculation": _speculation(sums),
        "target_busy": sum(cell.target_busy_seconds for cell in cells)
        / (simulation.seconds * simulation.cell_targets * len(cells)),
        "draft_busy": _ratio(
            sum(cell.draft_busy_seconds for cell in cells), sum(c.draft_seconds for c in cells)
        ),
        "drafts_mean": scale * sum(cell.draft_seconds for cell in cells) / simulation.seconds,
        "draft_passes_per_step": _ratio(sum(cell.draft_passes for cell in cells), sums["steps"]),
        "preemptions": scale * sums["preemptions"],
        "cost": _cost(simulation, cells, scale, sums["generation_tokens"]),
        "switches": sum(cell.switches for cell in cells) / len(cells),
    }  # fmt: skip


def document(simulation: Simulation, cells: Sequence[CellFigures]) -> dict[str, Any]:
    """Return all that `--json` prints: the summary, series and events of each cell, host's cost."""
    return {
        "summary": summary(simulation, cells),
        "cells": [
            {
                "series": [asdict(point) for point in cell.points],
                "events": [{"second": at, "sentence": words} for at, words in cell.sentences],
            }
            for cell in cells
        ],
        "simulation": {
            "seed": simulation.seed,
            "wall_seconds": [cell.wall_seconds for cell in cells],
            "target_steps": sum(cell.counters["steps"] for cell in cells),
            "draft_passes": sum(cell.draft_passes for cell in cells),
            "events": sum(cell.events for cell in cells),
        },
    }


def spread(values: Iterable[float]) -> dict[str, float] | None:
    """Return mean and percentiles; None where there is no value."""
    known = np.sort(np.fromiter(values, np.float64))
    if not len(known):
        return None
    at = {
        f"p{share}": float(known[math.ceil(share / 100 * len(known)) - 1]) for share in (50, 90, 99)
    }
    return {"mean": float(known.mean()), **at}


def _speculation(sums: dict[str, float]) -> dict[str, float | None]:
    return {
        "gain": _ratio(sums["plain_seconds"], sums["spent_seconds"]),
        "tokens_per_pass": _ratio(sums["tokens"], sums["passes"]),
        "hit_rate": _ratio(sums["first_hits"], sums["first_guesses"]),
        "node_rows_per_pass": _ratio(sums["draft_rows"], sums["passes"]),
        "blind_share": _ratio(sums["blind_passes"], sums["passes"]),
        "resting_share": _ratio(sums["resting_passes"], sums["passes"]),
    }


def _gpus(simulation: Simulation) -> dict[str, int]:
    drafts = simulation.drafts * (0 if simulation.draft is None else simulation.draft.gpus)
    return {"targets": simulation.target.replicas * simulation.target.gpus, "drafts": drafts}


def _cost(
    simulation: Simulation, cells: Sequence[CellFigures], scale: float, tokens: float
) -> dict[str, float | None]:
    """Return GPU hours, and the price of all and of a million tokens."""
    draft_gpus = 0 if simulation.draft is None else simulation.draft.gpus
    target_hours = simulation.target.replicas * simulation.target.gpus * simulation.seconds / 3600
    draft_hours = scale * sum(cell.draft_seconds for cell in cells) * draft_gpus / 3600
    prices = simulation.prices
    total = target_hours * prices.target_gpu_hour + draft_hours * prices.draft_gpu_hour
    return {
        "target_gpu_hours": target_hours,
        "draft_gpu_hours": draft_hours,
        "price": total,
        "price_per_million_tokens": _ratio(1e6 * total, scale * tokens),
    }


def _ratio(value: float, by: float) -> float | None:
    return value / by if by else None


def _standard_error(values: Sequence[float]) -> float:
    """Return that of the mean of the values; 0 for one value, which says nothing of it."""
    if len(values) < 2:
        return 0.0
    return float(np.std(values, ddof=1) / math.sqrt(len(values)))
