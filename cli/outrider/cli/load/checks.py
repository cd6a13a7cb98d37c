"""The parts of a load from the options of `outrider bench serve`, checked before anything is sent.

The run itself is `session`'s.
"""

import os
from collections.abc import Sequence
from pathlib import Path

from outrider.cli.failures import BadInput, Failure
from outrider.cli.load import prompts, slo
from outrider.cli.load.arrivals import Arrivals
from outrider.cli.load.prompts import BundledPrompt, Conversation
from outrider.cli.load.session import Measurement, Pace
from outrider.cli.plotting import ensure_possible

BURST = 8


def above_zero(option: str, value: float | None) -> None:
    """Raise `BadInput` for a number that is not above 0."""
    if value is not None and not 0 < value < float("inf"):
        raise BadInput(f"{option} {value:g} is not allowed; allowed: a number above 0")


def pace(
    arrivals: Arrivals | None, rate: float | None, burst_size: int | None, concurrency: int | None
) -> Pace:
    """Return the pace of requests; raises `BadInput` where options leave it open or contradict."""
    if (rate is None) == (concurrency is None):
        both = "both" if rate is not None else "neither"
        raise BadInput(
            f"{both} of --rate and --concurrency given; allowed: --rate R for requests per second, "
            "or --concurrency N for as many at a time"
        )
    if rate is None and arrivals is not None:
        raise BadInput(f"--arrivals {arrivals} needs --rate; with --concurrency nothing arrives")
    if burst_size is not None and arrivals is not Arrivals.BURST:
        raise BadInput(f"--burst-size {burst_size} needs --arrivals burst")
    return Pace(
        arrivals=arrivals or Arrivals.POISSON,
        rate=rate,
        burst_size=burst_size or BURST,
        concurrency=concurrency,
    )


def source(
    file: Path | None, input_tokens: int | None
) -> Sequence[BundledPrompt] | Sequence[Conversation]:
    """Return the prompts of --prompts, or the bundled ones; raises `BadInput`."""
    if file is None:
        return prompts.bundled()
    if input_tokens is not None:
        raise BadInput(f"--input-tokens {input_tokens} is not allowed with --prompts")
    return prompts.read(file)


def objectives(words: str | None) -> list[slo.Objective]:
    """Return the objectives of --slo; raises `BadInput`."""
    return slo.objectives(words) if words else []


def plot_path(path: Path | None) -> Path | None:
    """Return the path of --plot; raises `BadInput` before the run."""
    if path is not None:
        ensure_possible(path)
    return writable("--plot", path)


def writable(option: str, path: Path | None) -> Path | None:
    """The path, if a file can be written there; raises `BadInput`, before the run."""
    if path is None:
        return None
    folder = next(one for one in path.absolute().parents if one.exists())
    target = path if path.exists() else folder
    if path.is_dir() or not folder.is_dir() or not os.access(target, os.W_OK):
        raise BadInput(f"{option} {path}: cannot be written; allowed: a file in a writable folder")
    return path


def verdict(measurement: Measurement) -> None:
    """Raise `Failure` for a run that cannot pass for a good one."""
    run = measurement.summary
    if run is None:
        return
    if run.texts is not None and run.texts.differences:
        raise Failure(f"--check-text: {len(run.texts.differences)} answers have a wrong text")
    if not run.completed and (run.failed or run.rejected):
        why = next(iter(run.problems), f"{run.rejected} were rejected (HTTP 429)")
        raise Failure(f"no request completed: {why}")
