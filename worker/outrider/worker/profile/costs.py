"""`python -m outrider.worker costs`: what passes of target and draft cost here, within seconds.

On CPUs the cost curve of each model's numeric path (`model.path_timing`), measured anew, by which a
worker then chooses its path; on GPUs, and over several ranks, what `measure_apart` measures. Prints
progress as JSON lines and one JSON object at the end. Leaves conclusions to the command line.
"""

from typing import Any

from outrider.contract.settings import MAX_DRAFT_THREADS, Dtype, ModelSettings, Role, WorkerSettings
from outrider.kernels.cpu.numeric_kind import NumericPath
from outrider.worker.host.device import torch_device
from outrider.worker.host.process import cores
from outrider.worker.launch.prepare import prepare_models
from outrider.worker.model.load import load_part
from outrider.worker.model.numeric_path import auto_curves, choose, fresh_curves
from outrider.worker.model.prepared import PreparedModel
from outrider.worker.profile.command import measure_apart, model_of, on_threads, print_json, roles


def main(settings: WorkerSettings, parent: int | None = None) -> int:
    """Measure target and draft, the draft as one rank, or a draft alone; `parent`: `profile`'s."""
    found = jobs(settings, cores())
    quickly = torch_device(settings.device) is None and settings.tensor_parallel == 1
    prepared = prepare_models(settings)
    costs: dict[str, dict[str, Any]] = {}
    for done, (role, threads) in enumerate(found):
        print_json(stage=f"timing {on_threads(role, threads)}", done=done, total=len(found))
        model = prepared.own if role is settings.role else prepared.colocated
        assert model is not None
        measured = (
            curve(model_of(settings, role), role, model, threads)
            if quickly
            else measure_apart(settings, role, threads, parent)
        )
        costs.setdefault(role, {})[str(threads)] = measured
    print_json(**costs)
    return 0


def jobs(settings: WorkerSettings, processors: int) -> list[tuple[Role, int]]:
    """Return roles and numbers of threads to measure."""
    on_gpu = torch_device(settings.device) is not None
    return [
        (role, threads)
        for role in roles(settings)
        for threads in ([settings.threads] if on_gpu else thread_counts(role, processors))
    ]


def thread_counts(role: Role, processors: int) -> list[int]:
    """Return the numbers of threads that may be best; a draft inside its target has the same."""
    if role is Role.DRAFT:
        return [threads for threads in (1, 2, 4) if threads <= min(MAX_DRAFT_THREADS, processors)]
    wanted = {1, 2, processors // 2, processors - 1, processors}
    return sorted(threads for threads in wanted if 1 <= threads <= processors)


def curve(
    model: ModelSettings, role: Role, prepared: PreparedModel, threads: int
) -> dict[str, Any]:
    """Return the numeric path that the role would take, and its seconds by rows.

    Both as measured now: whoever asks has nothing remembered, or doubts it.
    """
    config = prepared.config()
    weights = load_part(prepared, lambda name, tensor: tensor)
    if model.dtype is Dtype.AUTO:
        curves = auto_curves(fresh_curves, config, weights, threads, prepared.cache)
        path = choose(curves, role).path
    else:
        path = NumericPath(model.dtype)
        curves = fresh_curves((path,), config, weights, threads, prepared.cache)
    return {"dtype": str(path), "rows": {str(n): seconds for n, seconds in curves[path].items()}}
