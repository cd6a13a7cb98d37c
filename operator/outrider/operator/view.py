"""What one pass observed, decided and did, and one observation that follows from it. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from outrider.contract.settings import Role
from outrider.operator.apply import ApplyResult
from outrider.operator.cluster.kinds import ChildKey
from outrider.operator.conditions import ConditionType
from outrider.operator.control.inputs import Decision
from outrider.operator.control.samples import Window
from outrider.operator.observed import Observed
from outrider.operator.spec.service import SpeculativeService
from outrider.operator.workers.poll import WorkerPoll


@dataclass(frozen=True, slots=True)
class ConditionState:
    """One observation; `holds` None: not known."""

    type: ConditionType
    holds: bool | None
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class View:
    """Input of all conditions: what one pass observed, decided and did."""

    observed: Observed
    service: SpeculativeService
    poll: WorkerPoll
    decision: Decision
    window: Window | None
    """Window that the decision was based on."""
    result: ApplyResult
    """Outcome of applying the children."""
    now: float
    """Seconds since the epoch."""
    failing: Mapping[ChildKey, str] = field(default_factory=dict)
    """Objects that could not be written in several passes, and why."""
    foreign_owners: Mapping[Role, str] = field(default_factory=dict)
    """Roles whose number of replicas has another owner, and its name."""
    certificates: Mapping[Role, str] = field(default_factory=dict)
    """Names of the Secrets with the certificates that each role's pods are to have; empty: none."""
    rival: str = ""
    """Operator that wants the service's namespace too, and is refused; empty: none."""
    unknown_fields: tuple[str, ...] = ()
    """Fields of the service that this program does not know and leaves out."""
    removed_fields: tuple[str, ...] = ()
    """Sentences about fields of the service that are gone, and left out."""
    keeps_pods: bool = False
    """True if this version of the operator would make other pods than those that are kept."""
