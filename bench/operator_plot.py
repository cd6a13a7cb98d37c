"""The plot of `bench.operator`: memory, processor, passes and requests over one run.

Leaves the samples to `operator_samples`.
"""

import itertools
from pathlib import Path
from typing import Any

from bench.operator_samples import Sample


def series(samples: list[Sample]) -> dict[str, list[float]]:
    """Return the plotted series: one value each second, rates from one sample to the next."""
    pairs = list(itertools.pairwise(samples))

    def rate(value: str, per: float) -> list[float]:
        return [
            round(per * (getattr(b, value) - getattr(a, value)) / (b.second - a.second), 3)
            for a, b in pairs
        ]

    return {
        "second": [round(b.second, 1) for _, b in pairs],
        "rss_mib": [round(b.rss_mib, 1) for _, b in pairs],
        "cpu_share": rate("cpu_seconds", 1),
        "passes_per_second": rate("passes", 1),
        "requests_per_second": rate("requests", 1),
    }


def plot(results: dict[str, Any], path: Path) -> None:
    """Memory, processor, passes and requests over time."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    found, marks = results["series"], results["marks"]
    rows = {
        "rss_mib": "resident memory, MiB",
        "cpu_share": "share of one processor",
        "passes_per_second": "reconciles a second",
        "requests_per_second": "API requests a second",
    }
    figure, axes = pyplot.subplots(len(rows), 1, figsize=(10, 9), sharex=True)
    for axis, (name, label) in zip(axes, rows.items(), strict=True):
        axis.plot(found["second"], found[name], lw=0.9)
        axis.set_ylabel(label)
        axis.set_ylim(bottom=0)
        for mark in marks.values():
            axis.axvline(mark, color="grey", lw=0.7, ls=":")
    for name, mark in marks.items():
        axes[0].annotate(name, (mark, 0), xytext=(2, 4), textcoords="offset points", fontsize=8)
    axes[0].set_title(f"{results['services']} services, commit {results['commit']}")
    axes[-1].set_xlabel("second")
    figure.tight_layout()
    figure.savefig(path, dpi=110, metadata={"Software": None})
    pyplot.close(figure)
