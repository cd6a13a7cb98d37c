"""Recommended placement of target and draft on a machine, from measured step costs alone.

Arithmetic, no measurement: tokens per second if drafting beside the target cost it nothing, and
acceptance were that of the demo pair. SwiftSpec's profiling step does so for GPUs (arXiv
2506.11309).
"""

from collections.abc import Mapping
from typing import Any

FIRST_REACH = 0.29
"""Acceptance of the best node row; the demo pair on chat prompts."""
REACH_DECAY = 0.8
"""Acceptance of each further row, over the one before: 2.2 tokens per pass at 8 rows, 2.4 at 16."""
SERIAL_PASSES = 4
"""Draft passes before a verify pass, if serial."""
HIDDEN_PASSES = 1
"""Draft passes that a target waits for on average, when the draft runs beside it."""
DRAFT_ROWS = 8
Costs = Mapping[str, Any]


def recommend(costs: Mapping[str, Costs]) -> dict[str, Any]:
    """Return the arrangement with the most expected tokens per second, and the rates of all.

    `costs` is {role: {threads: {"rows": {rows: seconds}}}}.
    """
    target = {int(t): _rows(c) for t, c in costs["target"].items()}
    draft = {int(t): _rows(c) for t, c in costs.get("draft", {}).items()}
    plain = {f"plain, {t} threads": _plain(rows) for t, rows in target.items()}
    rates = plain | _serial(target, draft) | _separate(target, draft)
    best = max(rates, key=lambda name: rates[name][0])
    rate, rows = rates[best]
    return {
        "arrangement": best,
        "rows": rows,
        "expected_over_plain": round(rate / max(r for r, _ in plain.values()), 2),
        "tokens_per_second": {name: round(r, 1) for name, (r, _) in rates.items()},
    }


def expected_tokens(rows: int) -> float:
    """Estimate the tokens of one pass over `rows` node rows."""
    return 1 + FIRST_REACH * (1 - REACH_DECAY**rows) / (1 - REACH_DECAY)


def _plain(rows: Mapping[int, float]) -> tuple[float, int]:
    return 1 / rows[1], 0


def _serial(
    target: Mapping[int, Mapping[int, float]], draft: Mapping[int, Mapping[int, float]]
) -> dict[str, tuple[float, int]]:
    """Rate serial drafting and verifying on the same threads, in one process."""
    return {
        f"Colocated, {t} threads": _best(target[t], SERIAL_PASSES * draft[t][DRAFT_ROWS])
        for t in target
        if t in draft
    }


def _separate(
    target: Mapping[int, Mapping[int, float]], draft: Mapping[int, Mapping[int, float]]
) -> dict[str, tuple[float, int]]:
    """Rate two processes that share the cores, for every split that leaves each at least one."""
    most = max(target)
    return {
        f"Separate, {t} + {d} threads": _best(target[t], HIDDEN_PASSES * draft[d][DRAFT_ROWS])
        for t in target
        for d in draft
        if t + d == most
    }


def _best(target: Mapping[int, float], drafting: float) -> tuple[float, int]:
    """Return the best rate over the measured row counts, and its node rows."""
    return max((expected_tokens(n - 1) / (s + drafting), n - 1) for n, s in target.items() if n > 1)


def _rows(costs: Costs) -> dict[int, float]:
    return {int(n): float(s) for n, s in costs["rows"].items()}
