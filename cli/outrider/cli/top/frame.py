"""One frame of `outrider top` for people, and one object of it for programs.

Computes nothing; figures are `figures`'.
"""

import dataclasses
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from outrider.cli.top.figures import TopFigures
from outrider.cli.top.history import History
from outrider.cli.top.poll import Look
from outrider.cli.top.stages import as_fields, lines, under_way
from outrider.client import Counters, LinkState, State
from outrider.contract.planning import CHOICES
from outrider.contract.settings import Role
from outrider.contract.sources import SOURCES

LEVELS = "▁▂▃▄▅▆▇█"
BAR = 5
"""Characters of a bar of KV."""
MAX_REASONS = 3
"""Reasons of steps that are shown for each target."""
MAX_DEPTHS = 8
"""Depths whose acceptance is shown."""
NONE = "-"
STATE_STYLES = {"ready": "green", "up": "green", "down": "bold red"}


def frame(history: History, now: datetime) -> RenderableType:
    """Everything that is known."""
    parts: list[RenderableType] = [heading(history, now), summary(history)]
    for role, table in ((Role.TARGET, targets), (Role.DRAFT, drafts)):
        if looks := history.of(role):
            parts.append(table(history, looks))
        if role is Role.TARGET and any(history.stages(look) for look in looks):
            parts.append(stages(history, looks))
    parts += [Text(f"  {one}", style="dim") for one in (*plans(history), *pipelines(history))]
    parts += [Text(f"  {memory}", style="dim") for memory in memories(history)]
    parts += [Text(f"  {trouble}", style="yellow") for trouble in troubles(history)]
    return Group(*parts)


def heading(history: History, now: datetime) -> Text:
    """Which service, how many workers, when."""
    models = dict.fromkeys(look.state.model for look in history.looks if look.state)
    counts = (
        f"{sum(look.state is not None for look in looks)} of {len(looks)} {role}s"
        for role in Role
        if (looks := history.of(role))
    )
    return Text.assemble(
        (", ".join(models) or "nothing answers", "bold"),
        f"  {', '.join(counts)}  ",
        (f"{now:%H:%M:%S}", "dim"),
    )


def summary(history: History) -> Table:
    """Return figures of all targets together, recent and since their start."""
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    table.add_column("all targets")
    table.add_column("now", justify="right")
    table.add_column("since start", justify="right")
    table.add_column("")
    now, total = history.now(), history.total()
    for name, show, label in ROWS:
        line = sparkline(history.rates) if name == "tokens_per_second" else ""
        table.add_row(label, _figure(now, name, show), _figure(total, name, show), line)
    table.add_row("accepted by depth", "", "", _depths(now) or _depths(total))
    table.add_row("accepted by source", "", "", _sources(now) or _sources(total))
    return table


def targets(history: History, looks: Iterable[Look]) -> Table:
    """One line for each target."""
    columns = ("run", "wait", "tok/s", "/pass", "rows", "gain", "drafting", "links")
    table = _table("target", *columns)
    for look in looks:
        if look.state is None:
            table.add_row(look.address, _state(look))
            continue
        state, lately = look.state, history.change(look)
        table.add_row(
            look.address,
            _state(look),
            str(state.running),
            str(state.waiting),
            _figure(lately, "tokens_per_second", number),
            _figure(lately, "tokens_per_pass", ratio),
            _figure(lately, "rows_per_pass", number),
            _figure(lately, "gain", ratio),
            state.drafting or NONE,
            _links(state),
            kv(state),
        )
    return table


def stages(history: History, looks: Iterable[Look]) -> Table:
    """One line for each stage of the pipelined targets."""
    table = Table(box=SIMPLE_HEAD, pad_edge=False, padding=0)
    table.add_column("stage", no_wrap=True)
    table.add_column("state", no_wrap=True)
    for column in ("layers", "busy", "in flight", "rows", "compute", "queue", "link"):
        table.add_column(column, justify="right", no_wrap=True)
    for look in looks:
        for cells in lines(look.address, history.stages(look) or ()):
            state = Text(cells[1], style=STATE_STYLES.get(cells[1], ""))
            table.add_row(cells[0], state, *cells[2:])
    return table


def drafts(history: History, looks: Iterable[Look]) -> Table:
    """One line for each draft."""
    columns = ("run", "tok/s", "passes/s", "rows", "prefix", "linked")
    table = _table("draft", *columns)
    for look in looks:
        if look.state is None:
            table.add_row(look.address, _state(look), *(7 - 2) * ("",), _linked(history, look))
            continue
        lately = history.change(look)
        table.add_row(
            look.address,
            _state(look),
            str(look.state.running),
            _figure(lately, "tokens_per_second", number),
            _figure(lately, "passes_per_second", number),
            _figure(lately, "rows_per_pass", number),
            _figure(lately, "prefix_hit_rate", percent),
            _linked(history, look),
            kv(look.state),
        )
    return table


def plans(history: History) -> Iterator[str]:
    """Yield for each target why its last step was as it was, and the most frequent reasons of
    late."""
    for look in history.of(Role.TARGET):
        if look.state is None or not look.state.planner_choice:
            continue
        shares = choices(history.counted(look, look.state))[:MAX_REASONS]
        reasons = "".join(f"; {share:.0%} {why}" for why, share in shares)
        yield f"{look.address}: {_words(look.state.planner_choice)} in its last step{reasons}"


def pipelines(history: History) -> Iterator[str]:
    """Yield for each pipelined target what it has under way."""
    for look in history.of(Role.TARGET):
        if look.state is not None and look.state.stages is not None:
            yield f"{look.address} has {under_way(look.state.stages)}"


def memories(history: History) -> Iterator[str]:
    """Yield for each target that shares memory with a draft in its process who has how much."""
    for look in history.of(Role.TARGET):
        if look.state is None or (memory := look.state.memory) is None:
            continue
        sizes = memory.target_kv_bytes, memory.draft_kv_bytes, memory.draft_weight_bytes
        kv_, draft_kv, weights = (f"{size / 2**20:.0f} MiB" for size in sizes)
        lent = f"; lent {memory.expansions} times" if memory.expansions else ""
        where = _words(memory.draft)
        yield (
            f"{look.address} has {kv_} of KV beside {draft_kv} of its draft's, whose "
            f"weights ({weights}) are {where}{lent}"
        )


def choices(counters: Counters) -> list[tuple[str, float]]:
    """Return why steps were as they were, with the share of steps, the most frequent first."""
    counts = dict(zip(map(_words, CHOICES), counters.planner_steps, strict=False))
    total = sum(counts.values())
    shares = [(why, count / total) for why, count in counts.items() if count]
    return sorted(shares, key=lambda one: -one[1])


def _words(choice: str) -> str:
    return choice.replace("_", " ")


def troubles(history: History) -> Iterator[str]:
    """Yield sentences on what does not work."""
    for look in history.looks:
        if look.state is None:
            yield f"{look.address} does not answer: {look.error}"
        else:
            group = look.state.stages
            if group is not None and not group.up:
                yield f"{look.address} has not all of its stages: {group.detail}"
            for link in look.state.links:
                if link.state is not LinkState.UP:
                    yield f"{look.address} has no link to {link.address}: {link.state}. " + (
                        link.detail
                    )


def as_json(history: History, now: datetime) -> dict[str, Any]:
    """The same as one object."""
    return {
        "time": now.astimezone().isoformat(timespec="milliseconds"),
        "now": _fields(history.now()),
        "since_start": _fields(history.total()),
        "workers": [
            {
                "address": look.address,
                "role": history.role(look),
                "up": look.state is not None,
                "error": look.error,
                "now": _fields(history.change(look)),
                "stages": as_fields(history.stages(look)),
                "state": _fields(look.state),
            }
            for look in history.looks
        ],
    }


def sparkline(rates: Iterable[float]) -> str:
    """A line of bars, the highest rate as high as a line."""
    values = list(rates)[-40:]
    top = max(values, default=0.0)
    return "".join(LEVELS[round(value / top * 7) if top else 0] for value in values)


def kv(state: State) -> str:
    """KV in use, as a bar."""
    used, slots = state.counters.kv_slots_used, state.counters.kv_slots
    share = used / slots if slots else 0.0
    filled = round(share * BAR)
    return f"{'█' * filled}{'░' * (BAR - filled)} {share:.0%}"


def number(value: float) -> str:
    """Three figures or so."""
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}"


def ratio(value: float) -> str:
    """Format with two decimals."""
    return f"{value:.2f}"


def percent(value: float) -> str:
    """A share of one."""
    return f"{value:.0%}"


Show = Callable[[float], str]
ROWS: tuple[tuple[str, Show, str], ...] = (
    ("tokens_per_second", number, "tokens/s"),
    ("prompt_tokens_per_second", number, "prompt tokens/s"),
    ("tokens_per_pass", ratio, "tokens per pass"),
    ("rows_per_pass", number, "rows per pass"),
    ("accepted_share", percent, "node rows accepted"),
    ("hit_rate", percent, "hit rate"),
    ("gain", ratio, "gain"),
    ("waiting_share", percent, "time waiting for growth"),
    ("prefix_hit_rate", percent, "prefix hits"),
)


def _table(who: str, *columns: str) -> Table:
    table = Table(box=SIMPLE_HEAD, pad_edge=False, padding=0)
    table.add_column(who, no_wrap=True)
    table.add_column("state", no_wrap=True)
    for column in columns:
        table.add_column(column, justify="right", no_wrap=True)
    table.add_column("KV", no_wrap=True)
    return table


def _figure(figures: TopFigures | None, name: str, show: Show) -> str:
    value = getattr(figures, name) if figures else None
    return NONE if value is None else show(value)


def _depths(figures: TopFigures | None) -> str:
    shares = figures.accepted_by_depth if figures else ()
    more = " …" if len(shares) > MAX_DEPTHS else ""
    return " ".join(map(percent, shares[:MAX_DEPTHS])) + more


def _sources(figures: TopFigures | None) -> str:
    """Return what proposed the node rows that were accepted, as `draft 62%, suffix 38%`; without
    sources of which none was."""
    shares = figures.accepted_by_source if figures else ()
    return ", ".join(
        f"{kind} {percent(share)}" for kind, share in zip(SOURCES, shares, strict=False) if share
    )


def _state(look: Look) -> Text:
    if look.state is None:
        word = "down"
    elif look.state.draining:
        word = "draining"
    else:
        word = "ready" if look.state.ready else "loading"
    return Text(word, style=STATE_STYLES.get(word, "yellow"))


def _links(state: State) -> str:
    """Return how many links of a target are up, and what carries them: `2/3 shared memory`."""
    up = [link for link in state.links if link.state is LinkState.UP]
    transports = sorted({link.transport.replace("_", " ") for link in up})
    return f"{len(up)}/{len(state.links)} {', '.join(transports)}".rstrip()


def _linked(history: History, draft: Look) -> str:
    """Return how many of the targets that name a draft have a link to it."""
    states = [target.state for target in history.of(Role.TARGET) if target.state]
    links = [link for s in states for link in s.links if link.address == draft.address]
    return f"{sum(link.state is LinkState.UP for link in links)}/{len(links)}"


def _fields(value: Any) -> dict[str, Any] | None:
    return None if value is None else dataclasses.asdict(value)
