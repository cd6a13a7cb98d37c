"""Loads a model onto the device that a worker's settings ask for."""

from outrider.contract.settings import Dtype, WorkerSettings
from outrider.worker.host.device import check_dtype, torch_device
from outrider.worker.launch.load_cpu import load_on_cpu
from outrider.worker.launch.loaded import LoadedModel
from outrider.worker.model.prepared import PreparedModel


def load_model(
    settings: WorkerSettings, dtype: Dtype, prepared: PreparedModel, beyond: int
) -> LoadedModel:
    """Loads and measures; `beyond` slots of each sequence lie behind the longest context.

    Loads torch for a GPU alone. Raises `ModelError`, and `GroupLost` when a rank is gone before all
    are ready.
    """
    device = torch_device(settings.device)
    check_dtype(dtype, gpu=device is not None)
    if device is None:
        return load_on_cpu(settings, dtype, prepared, beyond)
    from outrider.worker.launch.load_gpu import load_on_device

    return load_on_device(settings, dtype, prepared, beyond, device)
