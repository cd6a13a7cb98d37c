"""`python -m outrider.worker cut`: the cut of a target over stages, by what its parts cost here.

For what starts all stages on one machine: stages that are started one by one cannot measure alike
(docs/decisions/0022). Prints one JSON object.
"""

from outrider.contract.settings import WorkerSettings
from outrider.worker.checkpoints.load import load_part
from outrider.worker.checkpoints.prepared import PreparedModel
from outrider.worker.costs.path_timing import LAYERS, Weights
from outrider.worker.launch.load_stage import path_of
from outrider.worker.launch.prepare import prepare_models
from outrider.worker.model.layer_range import LayerRange
from outrider.worker.model.sharding import Shard
from outrider.worker.model.tensor_names import LAYERS as PREFIX
from outrider.worker.parallel.placement import LEADER
from outrider.worker.pipeline.cut import PartCosts, cut_by_cost
from outrider.worker.profile.command import print_json
from outrider.worker.profile.part_timing import part_costs


def main(settings: WorkerSettings) -> int:
    """Measure, or remember, and print the layers of each stage, and why in words.

    Raises `ModelError`, and `SettingsError` for more stages than layers.
    """
    prepared = prepare_models(settings).own
    shard = Shard(prepared.config(), LEADER, settings.tensor_parallel)
    path = path_of(settings.model.dtype)
    costs = part_costs(
        shard.config, lambda: few_layers(prepared, shard), path, settings.threads, prepared.cache
    )
    cut = cut_by_cost(shard.whole.layers, settings.pipeline.stages, costs)
    counts = [layers.count for layers in cut]
    print_json(cut=counts, words=in_words(counts, costs))
    return 0


def few_layers(prepared: PreparedModel, shard: Shard) -> Weights:
    """Load one rank's share of the first layers, embedding and head."""
    whole = shard.whole
    first = LayerRange(0, min(LAYERS, whole.layers), whole.layers)
    last = LayerRange(whole.layers - 1, whole.layers, whole.layers)

    def wanted(name: str) -> bool:
        return first.holds(name, whole) or (last.holds(name, whole) and not name.startswith(PREFIX))

    return load_part(prepared, shard.cut, wanted)


def in_words(counts: list[int], costs: PartCosts) -> str:
    """Say which cut was taken and why."""
    cut = " + ".join(map(str, counts))
    layer, embedding, head = (1e3 * seconds for seconds in costs)
    return (
        f"cut into {cut} layers by measured times: a layer {layer:.2f} ms, embedding "
        f"{embedding:.2f} ms, head and sampling {head:.2f} ms"
    )
