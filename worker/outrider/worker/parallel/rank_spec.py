"""What one following rank is told when it is started: a line of JSON on its stdin.

Knows nothing of passes, which a rank hears of from its leader, and loads no torch.
"""

import json
from dataclasses import dataclass
from typing import Any, Self

from outrider.contract.settings import WorkerSettings
from outrider.worker.host.device import devices_of
from outrider.worker.model.prepared import PreparedModel
from outrider.worker.parallel.placement import RankPlacement, processors_of

GROUP_LOST = 1
"""Exit status; whoever supervises the worker restarts it, as after any other."""


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
    host: str
    """This machine's address as the other ranks reach it."""
    leader: str
    """Host at which ranks meet."""
    port: int
    memory: int | None = None
    """Descriptor of the memory that all share; None: they have devices, or several machines."""
    device: str | None = None
    """What torch calls its own; None: it computes on the CPU's path."""

    def to_json(self) -> str:
        """One line that `from_json` reads back."""
        fields: dict[str, Any] = {name: getattr(self, name) for name in self.__slots__}
        return json.dumps(fields | {"prepared": self.prepared.to_fields()})

    @classmethod
    def from_json(cls, text: str) -> Self:
        """The inverse of `to_json`."""
        fields = json.loads(text)
        fields["prepared"] = PreparedModel.from_fields(fields["prepared"])
        fields["processors"] = tuple(fields["processors"])
        return cls(**fields)


def rank_specs(
    settings: WorkerSettings,
    prepared: PreparedModel,
    place: RankPlacement,
    port: int,
    host: str,
    memory: int | None = None,
    device: str | None = None,
) -> list[RankSpec]:
    """What each rank of this machine is told, the leader among them.

    `device` of the machine's first rank. Raises `ModelError` if there is none for each.
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
            host=host,
            leader=place.leader,
            port=port,
            memory=memory,
            device=devices[rank - ranks.start],
        )
        for rank in ranks
    ]
