"""Step costs of a description: measured by `outrider profile`, or a few numbers."""

import json
from pathlib import Path
from typing import Any

import numpy as np

from outrider.contract.settings import Role
from outrider.operator.spec.document import SpecError
from outrider.simulator.description import Costs, Worker
from outrider.simulator.pass_times import PassTimes
from outrider.worker.costs.step_costs import StepCosts

CONTEXT = 1000
"""Tokens of context that `contextMicroseconds` is for."""
BATCHES = (1, 64)
"""Numbers of sequences of a table from few numbers; lines between and beyond."""


def pass_times(worker: Worker, role: Role, folder: Path) -> PassTimes:
    """Return the pass times of a role's workers; relative files are in `folder`.

    Raises `SpecError`.
    """
    costs = worker.costs
    known = table(costs) if costs.profile is None else profiled(costs, role, folder)
    return PassTimes(
        known,
        costs.host_microseconds / 1e6,
        costs.host_microseconds_per_sequence / 1e6,
        costs.row_microseconds / 1e6,
        costs.pass_microseconds / 1e6,
        costs.pass_microseconds_per_sequence / 1e6,
    )


def table(costs: Costs) -> StepCosts:
    """Return step costs of a few numbers: more context costs each sequence alike."""
    near = np.array(costs.milliseconds, np.float64) / 1e3
    more = costs.context_microseconds / 1e6
    raw = np.array([[near, near + more * batch] for batch in BATCHES])
    return StepCosts.smoothed(
        tuple(costs.rows or ()), (0, CONTEXT), raw, BATCHES, costs.prefill_share
    )


def profiled(costs: Costs, role: Role, folder: Path) -> StepCosts:
    """Return step costs out of the JSON of `outrider profile`."""
    file = folder / str(costs.profile)
    try:
        measured = json.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise SpecError(f"{file}: {error.strerror}") from None
    except ValueError as error:
        raise SpecError(f"{file}: not JSON: {error}") from None
    by_threads = measured.get(role) if isinstance(measured, dict) else None
    if not isinstance(by_threads, dict) or not by_threads:
        raise SpecError(f"{file}: holds no step costs of a {role}; `outrider profile --json` does")
    return _of_threads(file, role, by_threads, costs.threads)


def _of_threads(
    file: Path, role: Role, by_threads: dict[str, Any], threads: int | None
) -> StepCosts:
    wanted = max(by_threads, key=int) if threads is None else str(threads)
    if wanted not in by_threads:
        raise SpecError(
            f"{role}.costs.threads: {threads} is not allowed; {file} has {', '.join(by_threads)}"
        )
    try:
        return StepCosts.from_json(by_threads[wanted]["step_costs"])
    except (KeyError, TypeError, ValueError):
        raise SpecError(f"{file}: {role}.{wanted}.step_costs is not what profile writes") from None
