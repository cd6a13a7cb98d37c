"""What one following rank is told when it is started: a line of JSON on its stdin.

Knows nothing of passes; those it hears from its leader.
"""

import json
from dataclasses import dataclass
from typing import Any, Self

from outrider.worker.model.prepared import PreparedModel


@dataclass(frozen=True, slots=True)
class RankWork:
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
