"""One run of the load generator: asks the endpoint, keeps up the load, reports.

A run that is ended early reports what it has.
"""

import asyncio
import contextlib
import json
import os
import random
from collections.abc import AsyncIterator, Callable
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import httpx
from rich.console import Console

from outrider.cli.failures import Failure
from outrider.cli.load import plot, show, texts
from outrider.cli.load.arrivals import Arrivals, moments
from outrider.cli.load.drive import Extent, Load
from outrider.cli.load.endpoint import Endpoint, served_model
from outrider.cli.load.exchange import Exchange, Manner
from outrider.cli.load.memory import MemoryWatch
from outrider.cli.load.slo import Objective
from outrider.cli.load.summary import Summary, summary
from outrider.cli.load.workload import Job, LoadWorkload
from outrider.cli.machine_info import write_report


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """Pace of requests: at a rate, or so many at a time."""

    arrivals: Arrivals
    rate: float | None
    """None: closed loop."""
    burst_size: int
    concurrency: int | None
    """None: open loop."""


@dataclass(slots=True, kw_only=True)
class Measurement:
    """Settings of a run, and then its figures."""

    command: str
    wanted: list[Objective]
    memory: MemoryWatch
    out: Path | None = None
    plot: Path | None = None
    as_json: bool = False
    summary: Summary | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """All that decides a run."""

    place: Endpoint
    model: str | None
    """None: the only one served."""
    manner: Manner
    workload: LoadWorkload
    pace: Pace
    extent: Extent
    seed: int
    load_average: tuple[float, float, float] = field(default_factory=os.getloadavg)

    async def run(self, measurement: Measurement) -> None:
        """Run and report; raises `Failure` before the first request, or over a file after it."""
        async with self.place.client() as client:
            model = await served_model(client, self.place, self.model)
            manner = replace(self.manner, model=model)
            load = self._load(client, manner)
            try:
                async with _beside(show.live(load), measurement.memory.run()):
                    await self._drive(load)
            finally:
                self._report(load, manner, measurement)

    def _load(self, client: httpx.AsyncClient, manner: Manner) -> Load:
        def begin(job: Job, due: float, clock: Callable[[], float]) -> Exchange:
            return Exchange(client, manner, job, due, clock)

        return Load(begin, self.workload.jobs(self.seed), self.extent)

    async def _drive(self, load: Load) -> None:
        if self.pace.rate is None:
            await load.closed_loop(self.pace.concurrency or 1)
            return
        rng = random.Random(self.seed)
        pace = self.pace
        await load.open_loop(moments(pace.arrivals, self.pace.rate, pace.burst_size, rng))

    def _report(self, load: Load, manner: Manner, measurement: Measurement) -> None:
        measurement.memory.sample()
        measured = measurement.summary = summary(
            load.outcomes,
            wanted=measurement.wanted,
            texts=texts.compare(load.outcomes) if self.workload.checked_pairs else None,
            memory=measurement.memory.growth(),
        )
        figures = {"settings": self._settings(manner), **asdict(measured)}
        if measurement.as_json:
            print(json.dumps(figures, ensure_ascii=False, allow_nan=False), flush=True)
        else:
            show.report(Console(), measured)
        try:
            if measurement.out is not None:
                self._write(measurement.out, measurement.command, figures)
            if measurement.plot is not None:
                plot.plot(load.outcomes, measurement.plot)
        except OSError as error:
            raise Failure(f"{error.filename}: {error.strerror}") from None

    def _settings(self, manner: Manner) -> dict[str, Any]:
        """Return the settings, without texts and keys."""
        return {
            "url": self.place.url,
            **asdict(manner),
            **asdict(self.pace),
            **{f"most_{name}": value for name, value in asdict(self.extent).items()},
            **{f"{name}_tokens": value for name, value in asdict(self.workload.lengths).items()},
            "temperature": self.workload.temperature,
            "cancel_share": self.workload.cancel_share,
            "checked_pairs": self.workload.checked_pairs,
            "seed": self.seed,
        }

    def _write(self, path: Path, command: str, figures: dict[str, Any]) -> None:
        write_report(
            path,
            command=command,
            results=figures,
            ratios={} if figures["goodput"] is None else {"goodput": figures["goodput"]},
            load_average=self.load_average,
        )


@contextlib.asynccontextmanager
async def _beside(*work: Any) -> AsyncIterator[None]:
    """Run coroutines until the block ends; an exception of theirs ends it."""
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(one) for one in work]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
