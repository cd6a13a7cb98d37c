"""Settings of a target with its draft in one process, for benchmarks that drive its engine."""

from outrider.contract.settings import Role, WorkerSettings
from outrider.operator.plan import PlanOptions, plan
from outrider.operator.spec import Placement, SpeculationMode, SpeculativeService


def colocated(service: SpeculativeService, threads: int) -> WorkerSettings:
    """Return settings of a target whose serial draft is always on."""
    assert service.spec.draft is not None
    draft = service.spec.draft.model_copy(update={"placement": Placement.COLOCATED})
    speculation = service.spec.speculation.model_copy(update={"mode": SpeculationMode.STATIC})
    spec = service.spec.model_copy(update={"draft": draft, "speculation": speculation})
    made = plan(service.model_copy(update={"spec": spec}), PlanOptions(threads=threads))
    (target,) = made.of(Role.TARGET)
    return target.settings
