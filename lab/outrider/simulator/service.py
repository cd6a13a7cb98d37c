"""The service that a simulation is of, as the operator would read it, and its settings.

So thresholds, break-even by GPUs and policies come from the very code that serves a cluster.
"""

import dataclasses
from typing import Any

from outrider.cli.service.rules import check_rules
from outrider.contract.settings import PolicySettings
from outrider.contract.sources import SourceKind
from outrider.operator import plan
from outrider.operator.control.settings import ControlSettings
from outrider.operator.spec import SpeculativeService, load_document
from outrider.simulator.description import SimulatedDraft, Simulation, Worker

MODEL = {"uri": "file:///simulated"}
"""No worker of a simulation reads weights."""


def policy_of(simulation: Simulation) -> PolicySettings:
    """Return the policy that targets begin with; simulated text repeats nothing."""
    service = service_of(simulation)
    drafts = simulation.draft is not None and service.spec.speculation.mode.value != "Disabled"
    return dataclasses.replace(plan.policy(service), speculate=drafts, sources=(SourceKind.DRAFT,))


def control_of(simulation: Simulation) -> ControlSettings:
    """Return the settings of the control loop of one cell."""
    return plan.control(service_of(simulation))


def service_of(simulation: Simulation) -> SpeculativeService:
    """Return the service of one cell; raises `SpecError`."""
    spec: dict[str, Any] = {
        "target": _role(simulation.target) | {"replicas": simulation.cell_targets},
        "speculation": simulation.speculation.model_dump(mode="json", by_alias=True),
    }
    if simulation.draft is not None:
        spec["draft"] = _draft(simulation, simulation.draft)
    document = {
        "apiVersion": "outrider.dev/v1alpha1",
        "kind": "SpeculativeService",
        "metadata": {"name": "simulated"},
        "spec": spec,
    }
    service = load_document(document)
    check_rules(service)
    return service


def _role(worker: Worker) -> dict[str, Any]:
    role: dict[str, Any] = {"model": MODEL, "engine": {"maxRunning": worker.max_running}}
    if worker.gpus:
        role["resources"] = {"limits": {"nvidia.com/gpu": worker.gpus}}
    return role


def _draft(simulation: Simulation, draft: SimulatedDraft) -> dict[str, Any]:
    if not draft.separate:
        return {"model": MODEL, "placement": "Colocated", "scaling": {"mode": "Static"}}
    scaling = {
        "mode": "Managed",
        "minReplicas": simulation.cell_least_drafts,
        "maxReplicas": simulation.cell_drafts,
    }
    return _role(draft) | {
        "replicas": simulation.cell_drafts,
        "placement": "Separate",
        "scaling": scaling,
    }
