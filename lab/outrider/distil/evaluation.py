"""What a finished draft is worth, on texts that it was not trained on: as it will be served.

The draft is loaded from its folder, by the worker's engine. What passes cost is of this machine.
"""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from functools import partial
from typing import Any

from torch import Tensor

from outrider.distil.agreement import agreement
from outrider.distil.engine import Engine
from outrider.distil.shards import Chat
from outrider.distil.trees import TokensPerPass, shortened, tokens_per_pass
from outrider.worker.costs.step_timing import TimedPass, borrowed, least_seconds

TREES = (1, 2, 4, 8, 16)
"""Nodes."""
COST_ROWS = (1, 2, 4, 8, 16)
CONTEXT = 128
"""Tokens of context in passes that are timed."""
COST_SECONDS = 2.0
TREE_TOKENS = 128
"""Tokens of each answer that trees walk along: what they give changes little with more."""
GROUP = 64
"""Texts that are walked along at a time."""


def evaluate(
    draft: Engine,
    target: Engine,
    chats: Sequence[Chat],
    head: Tensor,
    tell: Callable[[int, int], None],
) -> dict[str, Any]:
    """Return all figures as plain values; `tell` is told parts done and their number."""
    parts = len(TREES) + 2
    tell(0, parts)
    found: dict[str, Any] = {"chats": len(chats)} | asdict(agreement(draft, chats, head))
    found["top"] = {str(n): share for n, share in found["top"].items()}
    tell(1, parts)
    found["tokens_per_pass"] = {}
    for done, nodes in enumerate(TREES, 2):
        found["tokens_per_pass"][str(nodes)] = round(_walked(draft, chats, nodes).mean, 4)
        tell(done, parts)
    found["pass_seconds"] = costs({"draft": draft, "target": target})
    tell(parts, parts)
    return found


def costs(engines: dict[str, Engine]) -> dict[str, dict[str, float]]:
    """Return the least seconds of a pass by model and rows, timed in turns on a text in memory."""
    with _timed(engines) as timed:
        cells = [(name, rows) for name in engines for rows in COST_ROWS]
        passes = [partial(timed[name].once, rows, CONTEXT) for name, rows in cells]
        least = least_seconds(passes, COST_SECONDS)
    found: dict[str, dict[str, float]] = {name: {} for name in engines}
    for (name, rows), seconds in zip(cells, least, strict=True):
        found[name][str(rows)] = seconds
    return found


@contextlib.contextmanager
def _timed(engines: dict[str, Engine]) -> Iterator[dict[str, TimedPass]]:
    """Yield passes of each model that time themselves."""
    with contextlib.ExitStack() as stack:
        yield {
            name: TimedPass(engine, [stack.enter_context(borrowed(engine.kv_cache))])
            for name, engine in engines.items()
        }


def _walked(draft: Engine, chats: Sequence[Chat], nodes: int) -> TokensPerPass:
    begun = [shortened(chat, TREE_TOKENS) for chat in chats]
    groups = [begun[i : i + GROUP] for i in range(0, len(begun), GROUP)]
    found = [tokens_per_pass(draft, group, nodes) for group in groups]
    return TokensPerPass(sum(f.committed for f in found), sum(f.passes for f in found))
