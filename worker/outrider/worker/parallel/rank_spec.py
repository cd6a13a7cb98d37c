"""Specs of ranks: a line of JSON on the stdin of a rank's process, by which it is started.

Leaves the start of the model and its steps to `step_message`. Loads neither torch nor numba.
"""

import dataclasses
import json
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

from outrider.contract.settings import WorkerSettings
from outrider.worker.checkpoints.prepared import PreparedModel
from outrider.worker.host.device import devices_of
from outrider.worker.model.layer_range import LayerRange
from outrider.worker.parallel.placement import RankPlacement, processors_of

GROUP_LOST = 1
"""Exit status; the supervisor of the worker restarts it, as after any other."""


class Rendezvous(NamedTuple):
    """Where the ranks of one machine meet the others."""

    host: str
    """This machine's address as the other ranks reach it."""
    port: int
    """Port of the leader's store."""
    memory: int | None = None
    """Descriptor of the memory that all share; None: they have devices, or several machines."""


@dataclass(frozen=True, slots=True)
class RankSpec:
    """One rank of one model."""

    prepared: PreparedModel
    """Files to load its share from."""
    rank: int
    size: int
    """Ranks in all."""
    threads: int
    processors: tuple[int, ...]
    """Processors that it keeps to; empty: any."""
    leader: str
    """Host at which ranks meet."""
    rendezvous: Rendezvous
    device: str | None = None
    """Torch's name of its own; None: it computes on the CPU's path."""
    layers: LayerRange | None = None
    """Layers of the pipeline stage that the ranks share; None: all."""

    def to_json(self) -> str:
        """Encode as one line."""
        fields: dict[str, Any] = {name: getattr(self, name) for name in self.__slots__}
        layers = None if self.layers is None else dataclasses.astuple(self.layers)
        return json.dumps(fields | {"prepared": self.prepared.to_fields(), "layers": layers})

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Decode what `to_json` encoded."""
        fields = json.loads(text)
        fields["prepared"] = PreparedModel.from_fields(fields["prepared"])
        fields["processors"] = tuple(fields["processors"])
        fields["rendezvous"] = Rendezvous(*fields["rendezvous"])
        fields["layers"] = fields["layers"] and LayerRange(*fields["layers"])
        return cls(**fields)


def rank_specs(
    settings: WorkerSettings,
    prepared: PreparedModel,
    place: RankPlacement,
    rendezvous: Rendezvous,
    device: str | None = None,
    layers: LayerRange | None = None,
) -> list[RankSpec]:
    """Return the spec of each rank of this machine, the leader among them.

    `device` of the machine's first rank; `layers` of a pipeline stage. Raises `ModelError` if there
    is no device for each.
    """
    ranks = place.ranks(settings.tensor_parallel)
    devices = devices_of(device, len(ranks))
    return [
        RankSpec(
            prepared=prepared,
            rank=rank,
            size=settings.tensor_parallel,
            threads=settings.threads,
            processors=processors_of(settings, rank - ranks.start, len(ranks)),
            leader=place.leader,
            rendezvous=rendezvous,
            device=devices[rank - ranks.start],
            layers=layers,
        )
        for rank in ranks
    ]
