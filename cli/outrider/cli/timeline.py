"""`--timeline` of `outrider run`: what its workers computed when, as a picture or as JSON.

Workers keep their last passes and segments; this asks for them once, at the end. Leaves drawing to
`lanes`, the times to the workers.
"""

import asyncio
import dataclasses
import json
import os
import shlex
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from outrider.cli import lanes, plotting
from outrider.cli.failures import BadInput, Failure
from outrider.cli.lanes import Span
from outrider.cli.local import LocalWorkers
from outrider.cli.supervisor import Supervisor
from outrider.client import ClientError, State, TimelineSpan
from outrider.contract.settings import Role

OPTION = "--timeline"
JSON = ".json"
SUFFIXES = (JSON, *plotting.SUFFIXES)
COMMAND_WIDTH = 170
"""Characters of a command in a title."""
ASK_SECONDS = 5.0
"""Longest wait for a worker's timeline."""

Lanes = Mapping[str, Sequence[TimelineSpan]]
"""By their names, in the order of these: those of drafts come first."""


def ensure_possible(path: Path) -> None:
    """Raise `BadInput` for a file that could not be written, before anything is started."""
    if path.suffix not in SUFFIXES:
        raise BadInput(f"{OPTION} {path}: allowed: a file that ends in {plotting.listed(SUFFIXES)}")
    if path.suffix != JSON:
        plotting.ensure_possible(path, OPTION)
    folder = path.absolute().parent
    if path.is_dir() or not folder.is_dir():
        wrong = "is a folder" if path.is_dir() else f"there is no folder {folder}"
        raise BadInput(f"{OPTION} {path}: {wrong}")
    if not os.access(path if path.exists() else folder, os.W_OK):
        raise BadInput(f"{OPTION} {path}: may not be written")


@dataclass(frozen=True, slots=True)
class TimelineFile:
    """Where the timeline of a run goes."""

    path: Path
    seconds: float
    """At the end of the work, that a picture shows."""
    command: str
    """For the title."""

    @classmethod
    def checked(cls, path: Path, seconds: float, arguments: Sequence[str]) -> Self:
        """Return the file of a command with these arguments; raises `BadInput` where it could not
        be written."""
        ensure_possible(path)
        command = shlex.join(("outrider", *arguments))
        return cls(path, seconds, textwrap.shorten(command, COMMAND_WIDTH))

    async def write(self, hand: LocalWorkers, arrangement: str) -> None:
        """Ask the workers, which still run, and write the file; raises `Failure`."""
        by_lane = await collect(hand)
        state = await hand.target_state()
        words = described(state, arrangement) if state is not None else arrangement
        write(by_lane, self.path, f"{self.command}\n{words}", self.seconds)


def described(state: State, arrangement: str) -> str:
    """Say what was run: model, stages, arrangement."""
    parts = [f"{state.model} in {state.dtype}", arrangement]
    if state.stages is not None:
        layers = " + ".join(str(stage.layers) for stage in state.stages.each)
        parts.insert(1, f"stages of {layers} layers, {state.stages.link}")
    return "; ".join(parts)


async def collect(hand: LocalWorkers) -> Lanes:
    """Ask all workers that run; one that does not answer has no lane.

    Of several drafts or targets, lanes bear the names of their workers.
    """
    drafts = [s for s in hand.supervisors if s.worker.role is Role.DRAFT]
    asked = [*drafts, *hand.targets]
    found = await asyncio.gather(*map(_spans, asked))
    several = {Role.DRAFT: len(drafts) > 1, Role.TARGET: len(hand.targets) > 1}
    by_lane: dict[str, list[TimelineSpan]] = {}
    for supervisor, spans in zip(asked, found, strict=True):
        prefix = f"{supervisor.worker.name} " if several[supervisor.worker.role] else ""
        for span in spans:
            by_lane.setdefault(prefix + span.lane, []).append(span)
    return dict(sorted(by_lane.items()))


def write(by_lane: Lanes, path: Path, title: str, seconds: float) -> None:
    """Write the file; a picture shows the last `seconds` of work. Raises `Failure`."""
    if not by_lane:
        raise Failure(f"{OPTION} {path}: nothing was computed, so that nothing was written")
    try:
        if path.suffix == JSON:
            path.write_text(json.dumps(as_json(by_lane, title)))
        else:
            lanes.draw(drawn(by_lane, seconds), title, path)
    except OSError as error:
        raise Failure(f"{OPTION} {path}: {error.strerror or error}") from None


def as_json(by_lane: Lanes, title: str) -> dict[str, Any]:
    """Return all spans, with Unix times."""
    return {
        "title": title,
        "spans": [
            dataclasses.asdict(span) | {"lane": lane}
            for lane, spans in by_lane.items()
            for span in spans
        ],
    }


def drawn(by_lane: Lanes, seconds: float) -> list[Span]:
    """Return the spans of the last so many seconds, each as a whole."""
    last = max(span.ended for span in _all(by_lane))
    return [
        Span(
            stage=at,
            segment=span.number,
            begin=span.began,
            end=span.ended,
            rows=span.rows,
            lane=lane,
            prompt_rows=span.prompt_rows,
            committed_rows=span.committed_rows,
            pruned_rows=span.pruned_rows,
        )
        for at, (lane, spans) in enumerate(by_lane.items())
        for span in spans
        if span.ended > last - seconds
    ]


def _all(by_lane: Lanes) -> Iterable[TimelineSpan]:
    return (span for spans in by_lane.values() for span in spans)


async def _spans(supervisor: Supervisor) -> tuple[TimelineSpan, ...]:
    try:
        async with supervisor.client(ASK_SECONDS) as client:
            return await client.timeline()
    except ClientError:
        return ()
