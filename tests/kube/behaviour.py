"""How a fake worker behaves, as the test that owns it wants: one small file that it reads again.

Shared by the worker's process and the test. Leaves what follows from it to `fake_worker`.
"""

import dataclasses
import json
import os
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

from outrider.protos.v1.internal import control_pb2 as pb

COUNTERS = frozenset(field.name for field in pb.Counters.DESCRIPTOR.fields if not field.is_repeated)
"""What can be set, or made to rise."""


@dataclasses.dataclass(frozen=True, slots=True)
class Behaviour:
    """What a test can say of a worker."""

    ready: bool = True
    """Whether its model is loaded."""
    running: int = 0
    """Sequences or sessions that run now; a drain waits for them to be 0, or for its grace."""
    waiting: int = 0
    drafting: str = "on"
    """What the switch of a target wants, where the policy allows drafting."""
    forgets: bool = False
    """Whether its next lives begin without the policy that was stored."""
    refuses: str = ""
    """Why a target refuses every link; empty: links are up as soon as their draft is ready."""
    rates: Mapping[str, float] = dataclasses.field(default_factory=dict)
    """How much each counter rises in a second. Without drafting those of drafted rows stand still,
    and the time spent rises as that of plain decoding."""
    counters: Mapping[str, float] = dataclasses.field(default_factory=dict)
    """Values that counters take when this is read; not those of a later life of the worker."""

    def __post_init__(self) -> None:
        for name in (*self.rates, *self.counters):
            if name not in COUNTERS:
                raise ValueError(f"no counter is called {name!r}; allowed: {sorted(COUNTERS)}")

    @classmethod
    def read(cls, file: Path) -> Self:
        """The newest one; a field that there is not is a `TypeError`."""
        return cls(**json.loads(file.read_text()))

    def write(self, file: Path) -> None:
        """Replaces the file in one step: a reader finds the old one or the new one."""
        new = file.with_suffix(f".{threading.get_ident()}")
        new.write_text(json.dumps(dataclasses.asdict(self)))
        new.replace(file)

    def but(self, changes: Mapping[str, Any]) -> Self:
        """With some fields changed; values of counters are told once, and so never kept."""
        return dataclasses.replace(self, **{"counters": {}, **changes})


def stamp(file: Path) -> tuple[int, int]:
    """Changes whenever the file is replaced."""
    status = os.stat(file)
    return status.st_ino, status.st_mtime_ns
