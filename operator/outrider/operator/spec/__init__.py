"""What a user writes, as types that hold only what is allowed; the CRDs are generated from them.

Neither starts nor contacts anything; `plan` says which workers follow. Floats are left out on
purpose: they are not welcome in Kubernetes resources.
"""

from outrider.operator.document import SpecError
from outrider.operator.spec.engine import (
    DeviceKind,
    DraftEngine,
    EngineSpec,
    Parallelism,
    TargetEngine,
)
from outrider.operator.spec.model import DraftModel, EmbeddingsFrom, Model, TargetModel
from outrider.operator.spec.part import SpecPart
from outrider.operator.spec.pods import Cache, CacheType, Resources, Strategy, Update
from outrider.operator.spec.roles import (
    Draft,
    DraftScaling,
    Placement,
    Requests,
    RoleSpec,
    Scaling,
    ScalingMode,
    Target,
)
from outrider.operator.spec.scaler import ScaledRole, SpeculativeRoleScaler, read_scaler
from outrider.operator.spec.service import (
    Spec,
    SpeculativeService,
    Suspend,
    load,
    read_object,
)
from outrider.operator.spec.speculation import (
    DraftShrink,
    ShrinkPolicy,
    Speculation,
    SpeculationMode,
)
from outrider.operator.spec.surroundings import (
    Automatic,
    EndpointPicker,
    Topology,
    TopologyPolicy,
)

__all__ = [
    "Automatic",
    "Cache",
    "CacheType",
    "DeviceKind",
    "Draft",
    "DraftEngine",
    "DraftModel",
    "DraftScaling",
    "DraftShrink",
    "EmbeddingsFrom",
    "EndpointPicker",
    "EngineSpec",
    "Model",
    "Parallelism",
    "Placement",
    "Requests",
    "Resources",
    "RoleSpec",
    "ScaledRole",
    "Scaling",
    "ScalingMode",
    "ShrinkPolicy",
    "Spec",
    "SpecError",
    "SpecPart",
    "Speculation",
    "SpeculationMode",
    "SpeculativeRoleScaler",
    "SpeculativeService",
    "Strategy",
    "Suspend",
    "Target",
    "TargetEngine",
    "TargetModel",
    "Topology",
    "TopologyPolicy",
    "Update",
    "load",
    "read_object",
    "read_scaler",
]
