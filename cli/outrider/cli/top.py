"""`outrider top`: asks the workers every few seconds and shows a row for each, or a JSON object.

Rates and ratios are between two samples of a worker's counters. Options are parsed by
`commands.top`.
"""

import asyncio
import contextlib
import dataclasses
import itertools
import json
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from rich.box import SIMPLE_HEAD
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from outrider.cli.access import OPEN, TargetAccess
from outrider.cli.failures import Failure
from outrider.client import AsyncClient, ClientError, Counters, LinkState, State
from outrider.contract.settings import Role
from outrider.contract.sources import SOURCES, SourceKind

PLAIN_WIDTH = 100
"""Columns of a frame that goes to no terminal."""
STYLES = {"ready": "green", "down": "bold red"}
COLUMNS: tuple[tuple[str, str, Callable[[float], str]], ...] = (
    ("tok/s", "tokens_per_second", "{:.1f}".format),
    ("/pass", "tokens_per_pass", "{:.2f}".format),
    ("acceptance", "acceptance_rate", "{:.0%}".format),
    ("gain", "gain", "{:.2f}".format),
)
"""Columns of rates: heading, name, format."""


class WorkerSample(NamedTuple):
    """Sample of one worker."""

    address: str
    role: Role
    at: float
    """`time.monotonic()`."""
    state: State | None
    """None: it did not answer."""
    error: str = ""
    """Reason for no answer."""


def rates(before: WorkerSample | None, after: WorkerSample) -> dict[str, float | None]:
    """Return the rates between two samples, None where there was nothing to divide by; nothing if
    the worker restarted or did not answer.

    Tokens a second are those of a target's answers, or those that a draft's targets committed.
    `gain` is the time that plain decoding would have taken over the time taken, `waiting_share` the
    share of passes' time that went into waiting for growth.
    """
    if before is None or before.state is None or after.state is None:
        return {}
    if before.state.incarnation != after.state.incarnation:
        return {}
    c = difference(before.state.counters, after.state.counters)
    is_draft = after.state.role is Role.DRAFT
    tokens = c.tokens if is_draft else c.generation_tokens
    return {
        "tokens_per_second": tokens / (after.at - before.at),
        "tokens_per_pass": None if is_draft else _by(c.tokens, c.passes),
        "acceptance_rate": None if is_draft else _by(c.accepted_rows, c.draft_rows),
        "hit_rate": _by(c.first_hits, c.first_guesses),
        "gain": _by(c.plain_seconds, c.spent_seconds),
        "waiting_share": _by(c.draft_wait_seconds, c.spent_seconds),
        "predicted_tokens_per_second": _of_predictions(c) / (after.at - before.at),
    }


def _of_predictions(counters: Counters) -> int:
    """Return the answer tokens that came from the predictions of requests; 0 of a draft."""
    by_source = dict(zip(SOURCES, counters.source_accepted, strict=False))
    return by_source.get(SourceKind.PREDICTION, 0)


def difference(before: Counters, after: Counters) -> Counters:
    """Subtract field by field, and depth by depth."""

    def less(a: Any, b: Any) -> Any:
        if isinstance(a, tuple):
            return tuple(x - y for x, y in itertools.zip_longest(a, b, fillvalue=0))
        return a - b

    names = (field.name for field in dataclasses.fields(Counters))
    return Counters(**{name: less(getattr(after, name), getattr(before, name)) for name in names})


def frame(
    before: Mapping[str, WorkerSample], samples: Sequence[WorkerSample], now: datetime
) -> Group:
    """Return the table of all workers, and below it what does not work."""
    models = dict.fromkeys(sample.state.model for sample in samples if sample.state)
    heading = Text(", ".join(models) or "nothing answers", "bold").append(f"  {now:%H:%M:%S}")
    table = Table(box=SIMPLE_HEAD, pad_edge=False, padding=0)
    for name in ("worker", "role", "state", *(one[0] for one in COLUMNS), "run", "wait", "KV"):
        table.add_column(name, no_wrap=True, justify="left" if len(table.columns) < 3 else "right")
    table.add_column("drafting")
    for sample in samples:
        table.add_row(*cells(rates(before.get(sample.address), sample), sample))
    troubles = [Text(f"  {trouble}", "yellow") for trouble in itertools.chain(*map(wrong, samples))]
    return Group(heading, table, *troubles)


def cells(found: Mapping[str, float | None], sample: WorkerSample) -> Iterator[Text | str]:
    """Yield the cells of a worker's row."""
    state, word = sample.state, _condition(sample.state)
    yield from (sample.address, str(sample.role), Text(word, STYLES.get(word, "yellow")))
    if state is None:
        return
    for _, name, shown in COLUMNS:
        value = found.get(name)
        yield "-" if value is None else shown(value)
    used, slots = state.counters.kv_slots_used, state.counters.kv_slots
    yield from (str(state.running), str(state.waiting), f"{used / slots if slots else 0:.0%}")
    predicted = found.get("predicted_tokens_per_second") or 0.0
    words = f"; {predicted:.1f} tok/s predicted" if predicted else ""
    yield "" if state.role is Role.DRAFT else drafting(state) + words


def drafting(state: State) -> str:
    """Say whether a target drafts, and where it does not, the planner's reason."""
    if state.drafting in ("", "on"):
        return state.drafting or "-"
    reason = state.planner_choice.replace("_", " ")
    return f"{state.drafting}: {reason}" if reason else state.drafting


def wrong(sample: WorkerSample) -> Iterator[str]:
    """Yield sentences on what does not work."""
    if sample.state is None:
        yield f"{sample.address} does not answer: {sample.error}"
        return
    if sample.state.stages is not None and not sample.state.stages.up:
        yield f"{sample.address} has not all of its stages: {sample.state.stages.detail}"
    for link in sample.state.links:
        if link.state is not LinkState.UP:
            yield f"{sample.address} has no link to {link.address}: {link.state}. {link.detail}"


def as_fields(
    before: Mapping[str, WorkerSample], samples: Sequence[WorkerSample], now: datetime
) -> dict[str, Any]:
    """Return the same, and each worker's whole state, as one object."""
    workers = [
        {
            "address": sample.address,
            "role": sample.role,
            "up": sample.state is not None,
            "error": sample.error,
            "now": rates(before.get(sample.address), sample),
            "state": dataclasses.asdict(sample.state) if sample.state else None,
        }
        for sample in samples
    ]
    return {"time": now.astimezone().isoformat(timespec="milliseconds"), "workers": workers}


class WatchedWorkers:
    """The targets at some addresses and the drafts that they name. Use as `async with`."""

    def __init__(self, addresses: Sequence[str], access: TargetAccess, timeout: float) -> None:
        """`timeout`: seconds for one answer; drafts are asked without the targets' `access`."""
        self._given, self._access, self._timeout = addresses, access, timeout
        self._clients: dict[str, AsyncClient] = {}
        self._drafts: dict[str, tuple[str, ...]] = {}
        """Drafts of each target, as it last said: one that is down keeps them in sight."""

    async def sample(self) -> list[WorkerSample]:
        """Ask every worker: those given, in order, then the drafts of the targets."""
        given = await asyncio.gather(*(self._ask(one, Role.TARGET) for one in self._given))
        for one in given:
            if one.state is not None:
                self._drafts[one.address] = tuple(link.address for link in one.state.links)
        named = dict.fromkeys(itertools.chain.from_iterable(self._drafts.values()))
        others = [self._ask(one, Role.DRAFT) for one in named if one not in self._given]
        return [*given, *await asyncio.gather(*others)]

    async def _ask(self, address: str, role: Role) -> WorkerSample:
        if address not in self._clients:
            access = self._access if address in self._given else OPEN
            self._clients[address] = access.client(address)
        try:
            state = await self._clients[address].state(timeout=self._timeout)
        except ClientError as error:
            return WorkerSample(address, role, time.monotonic(), None, str(error))
        return WorkerSample(address, state.role, time.monotonic(), state)

    async def __aenter__(self) -> "WatchedWorkers":
        return self

    async def __aexit__(self, *_: object) -> None:
        await asyncio.gather(*(client.close() for client in self._clients.values()))


async def watch(
    addresses: Sequence[str], access: TargetAccess, interval: float, *, once: bool, as_json: bool
) -> None:
    """Show frames until interrupted, or one; raises `Failure` if at first nothing answers."""
    console = Console() if sys.stdout.isatty() else Console(width=PLAIN_WIDTH)
    before: dict[str, WorkerSample] = {}
    async with contextlib.AsyncExitStack() as stack:
        workers = await stack.enter_async_context(WatchedWorkers(addresses, access, interval + 1.0))
        live = None
        while True:
            samples = await workers.sample()
            if not before and not any(sample.state for sample in samples):
                told = "; ".join(f"{sample.address}: {sample.error}" for sample in samples)
                raise Failure(f"nothing answers: {told}")
            if as_json and before:
                print(json.dumps(as_fields(before, samples, datetime.now())), flush=True)
            elif not as_json and console.is_terminal and not once:
                live = live or stack.enter_context(Live(console=console, screen=True))
                live.update(frame(before, samples, datetime.now()), refresh=True)
            elif not as_json and before:
                console.print(frame(before, samples, datetime.now()))
            if once and before:
                return
            before = {sample.address: sample for sample in samples}
            await asyncio.sleep(interval)


def _condition(state: State | None) -> str:
    if state is None:
        return "down"
    return "draining" if state.draining else "ready" if state.ready else "loading"


def _by(amount: float, base: float) -> float | None:
    return amount / base if base else None
