"""The report of a distillation: what was done and what came out, as JSON and as a picture."""

import hashlib
import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from outrider.distil.recipe import Recipe
from outrider.distil.target import Target
from outrider.distil.training import TrainingRecipe
from outrider.distil.whole_files import write_json, write_whole
from outrider.worker.checkpoints.checkpoint import WEIGHTS

REPORT, PICTURE = "report.json", "report.png"


def report_fields(
    recipe: Recipe, target: Target, work: Mapping[str, Any], held_out: Mapping[str, Any]
) -> dict[str, Any]:
    """Return everything that is reported; `work`: data, vocabulary and training."""
    weights = recipe.out / WEIGHTS
    return {
        "target": {"uri": target.uri, "sha256": target.sha256},
        "draft": {
            "bytes": weights.stat().st_size,
            "sha256": hashlib.sha256(weights.read_bytes()).hexdigest(),
        },
        **work,
        "held_out": held_out,
    }


def write_report(folder: Path, fields: Mapping[str, Any]) -> None:
    """Write the JSON and the picture; raises `NotWritten`."""
    picture = plot(fields)
    write_whole(folder / PICTURE, lambda opened: opened.write(picture))
    write_json(folder / REPORT, fields)


def training_fields(recipe: TrainingRecipe, curve: Sequence[Mapping[str, float]]) -> dict[str, Any]:
    """Return what a report says of one training."""
    return {
        "steps": recipe.steps,
        "batch_tokens": recipe.batch_tokens,
        "learning_rate": recipe.learning_rate,
        "curve": list(curve),
    }


def plot(fields: Mapping[str, Any]) -> bytes:
    """Return the picture of a report, as PNG: learning, tokens per pass, cost of a pass."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, 3, figsize=(12, 3.6), layout="constrained")
    _learning(axes[0], fields["training"])
    trees = {int(n): mean for n, mean in fields["held_out"]["tokens_per_pass"].items()}
    axes[1].plot(list(trees), list(trees.values()), marker="o")
    axes[1].set(xlabel="nodes of a tree", ylabel="tokens per pass of the target", ylim=(1, None))
    for name, seconds in fields["held_out"]["pass_seconds"].items():
        rows = [int(n) for n in seconds]
        axes[2].plot(rows, [1e3 * s for s in seconds.values()], marker="o", label=name)
    axes[2].set(xlabel="rows", ylabel="ms a pass", ylim=(0, None))
    axes[2].legend(fontsize="small")
    for axis in axes:
        axis.spines[["top", "right"]].set_visible(False)
    made = io.BytesIO()
    figure.savefig(made, dpi=120, format="png")
    pyplot.close(figure)
    return made.getvalue()


def _learning(axis: Any, trainings: Sequence[Mapping[str, Any]]) -> None:
    """Plot loss and top-1 by step, one training behind the other."""
    other, before = axis.twinx(), 0
    for training in trainings:
        curve = training["curve"]
        steps = [before + point["step"] for point in curve]
        axis.plot(steps, [point["divergence"] for point in curve], color="C0")
        other.plot(steps, [point["agreement"] for point in curve], color="C1")
        before = steps[-1]
    axis.set(xlabel="steps", ylabel="divergence, nats", ylim=(0, None))
    axis.yaxis.label.set_color("C0")
    other.set(ylabel="top-1 among its outputs", ylim=(0, 1))
    other.yaxis.label.set_color("C1")
    other.spines["top"].set_visible(False)
