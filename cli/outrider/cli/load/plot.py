"""Plot of a run: latencies as cumulative shares, and throughput over time.

Needs matplotlib, which is not among the command line's own requirements.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from outrider.cli.load.outcome import Outcome, Status

BINS = 60
"""Most intervals of throughput over time; none is shorter than a second."""


def plot(outcomes: Sequence[Outcome], path: Path) -> None:
    """Write the picture."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, 4, figsize=(15, 3.4))
    completed = [one for one in outcomes if one.status is Status.COMPLETED]
    _shares(axes[0], "time to first token", [o.ttft for o in outcomes if o.ttft is not None])
    _shares(axes[1], "time per output token", [o.tpot for o in completed if o.tpot is not None])
    _shares(axes[2], "end-to-end latency", [one.latency for one in completed])
    _over_time(axes[3], outcomes)
    figure.tight_layout()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)
    pyplot.close(figure)


def _shares(axis: Any, name: str, seconds: Sequence[float]) -> None:
    known = sorted(seconds)
    axis.step(known, [(at + 1) / len(known) for at in range(len(known))], where="post")
    axis.set(title=name, xlabel="seconds", ylabel="share of requests", ylim=(0, 1.02))
    axis.spines[["top", "right"]].set_visible(False)


def _over_time(axis: Any, outcomes: Sequence[Outcome]) -> None:
    rates, width = throughput(outcomes)
    axis.stairs(rates, [at * width for at in range(len(rates) + 1)], baseline=None)
    axis.set(
        title="throughput", xlabel="seconds", ylabel="output tokens per second", ylim=(0, None)
    )
    axis.spines[["top", "right"]].set_visible(False)


def throughput(outcomes: Sequence[Outcome]) -> tuple[list[float], float]:
    """Return the tokens per second in each interval of the run, and the interval's seconds."""
    duration = max((one.ended for one in outcomes), default=0.0)
    count = min(BINS, max(1, int(duration)))
    width = duration / count or 1.0
    tokens = [0.0] * count
    for one in outcomes:
        chunks = one.answer.chunks
        for chunk in chunks:
            at = min(int(chunk.at / width), count - 1)
            tokens[at] += chunk.tokens or one.answer.tokens / len(chunks)
    return [number / width for number in tokens], width
