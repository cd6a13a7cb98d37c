"""Stages of pipelined targets: figures of each between two looks, and their lines of a frame.

Pure. What the leader counts is of segments that came back, so that a long segment counts as a whole
when it does.
"""

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass

from outrider.cli.top.poll import Look
from outrider.client import StageGroup, StageView

NO_GROUP = StageGroup(up=False, detail="", losses=0)
UP, DOWN = "up", "down"


@dataclass(frozen=True, slots=True, kw_only=True)
class StageFigures:
    """Of one stage over a time; None where there was nothing to divide by."""

    index: int
    first_layer: int
    layers: int
    busy: float
    """Share of the time for which it computed."""
    rows_in_flight: float
    """Rows in it, those that wait among them, in the mean over the time."""
    rows_per_segment: float | None
    queue_seconds: float | None
    """For which a segment waited in it."""
    compute_seconds: float | None
    """Of a segment."""
    link_seconds: float | None
    """For which a segment was on its way to it, from the stage before or the leader."""
    link: str
    """What carries records to it."""
    link_state: str
    """`up` while all stages run as one, else `down`: a group lives and ends as one."""


def stage_figures(before: Look | None, after: Look) -> tuple[StageFigures, ...] | None:
    """Return the figures of a target's stages between two looks; None where it has no stages, has
    restarted or did not answer."""
    if before is None or before.state is None or after.state is None:
        return None
    if before.state.incarnation != after.state.incarnation or after.state.stages is None:
        return None
    group, seconds = after.state.stages, after.at - before.at
    known = {view.index: view for view in (before.state.stages or NO_GROUP).each}
    return tuple(_figures(known.get(view.index), view, group, seconds) for view in group.each)


def _figures(
    before: StageView | None, after: StageView, group: StageGroup, seconds: float
) -> StageFigures:
    def counted(name: str) -> float:
        return float(getattr(after, name) - (getattr(before, name) if before else 0))

    def each(name: str) -> float | None:
        return counted(name) / segments if segments else None

    segments = counted("segments")
    return StageFigures(
        index=after.index,
        first_layer=after.first_layer,
        layers=after.layers,
        busy=counted("busy_seconds") / seconds,
        rows_in_flight=counted("row_seconds") / seconds,
        rows_per_segment=each("rows"),
        queue_seconds=each("queue_seconds"),
        compute_seconds=each("busy_seconds"),
        link_seconds=each("link_seconds"),
        link=group.link,
        link_state=UP if group.up else DOWN,
    )


def lines(address: str, stages: tuple[StageFigures, ...]) -> Iterator[tuple[str, ...]]:
    """Yield the line of each stage, as its table has it."""
    for stage in stages:
        yield (
            f"{address} {stage.index}",
            stage.link_state,
            f"{stage.first_layer}-{stage.first_layer + stage.layers - 1}",
            f"{min(1.0, stage.busy):.0%}",
            f"{stage.rows_in_flight:.1f}",
            _number(stage.rows_per_segment),
            _millis(stage.compute_seconds),
            _millis(stage.queue_seconds),
            f"{stage.link} {_millis(stage.link_seconds)}",
        )


def under_way(group: StageGroup) -> str:
    """Say what a target has under way, and what became of the rows that left before."""
    known = group.prompt_rows + group.committed_rows + group.pruned_rows
    fates = f"; {group.pruned_rows / known:.0%} of all rows were pruned" if known else ""
    return f"{group.segments_in_flight} segments with {group.rows_in_flight} rows under way{fates}"


def as_fields(stages: tuple[StageFigures, ...] | None) -> list[dict[str, object]] | None:
    """The same for programs."""
    return None if stages is None else [dataclasses.asdict(stage) for stage in stages]


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f}"


def _millis(seconds: float | None) -> str:
    return "-" if seconds is None else f"{1e3 * seconds:.1f} ms"
