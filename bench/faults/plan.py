"""Plan of faults: what happens to which draft, for how long, all from one seed; pure.

Faults come one after the other, so that what is seen can be told by fault, each after a calm time
that says what it is compared with.
"""

import enum
import random
from dataclasses import dataclass

CALM_SECONDS = (6.0, 10.0)
FAULT_SECONDS = (4.0, 12.0)
"""Range of a fault's length. A link to a silent draft counts as lost after 15 s."""
DELAY_SECONDS = (0.02, 0.1)
"""Range of a delay, each way: five passes of the demo's target and more."""


class Kind(enum.StrEnum):
    """Kind of a fault."""

    KILLED = "killed"
    """SIGKILL to the draft's processes; it is started again at the end."""
    STOPPED = "stopped"
    """SIGSTOP; SIGCONT at the end."""
    PARTITIONED = "partitioned"
    """All its connections are reset, and new ones, until the end."""
    DELAYED = "delayed"
    """What it sends and is sent comes later, each way, until the end."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault of one draft."""

    kind: Kind
    draft: int
    """Number of the draft, from 0."""
    calm: float
    """Seconds without a fault before it."""
    seconds: float
    """How long it lasts; a killed draft needs the time of its start in addition."""
    delay: float = 0.0
    """Seconds each way, of a delayed one."""

    @property
    def span(self) -> float:
        """Seconds of fault and calm together."""
        return self.calm + self.seconds


def plan(seed: int, drafts: int, seconds: float) -> tuple[Fault, ...]:
    """Return the faults that fit into so many seconds, a calm time after the last one included.

    Every kind comes once before any comes again; order, draft and times are drawn.
    """
    rng, kinds = random.Random(seed), list[Kind]()
    faults: list[Fault] = []
    left = seconds - CALM_SECONDS[1]
    while True:
        kinds = kinds or rng.sample(tuple(Kind), len(Kind))
        fault = _draw(rng, kinds.pop(), drafts)
        left -= fault.span
        if left < 0:
            return tuple(faults)
        faults.append(fault)


def _draw(rng: random.Random, kind: Kind, drafts: int) -> Fault:
    draft = rng.randrange(drafts)
    calm, seconds = rng.uniform(*CALM_SECONDS), rng.uniform(*FAULT_SECONDS)
    delay = rng.uniform(*DELAY_SECONDS)
    return Fault(kind, draft, calm, seconds, delay if kind is Kind.DELAYED else 0.0)
