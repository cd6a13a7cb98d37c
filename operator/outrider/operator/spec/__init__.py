"""The description of a service as types that hold only allowed values; the CRDs follow from them.

Starts and contacts nothing; leaves the workers to `plan`. There are no floats: Kubernetes advises
against them in resources.
"""

from outrider.operator.control.settings import ShrinkPolicy, SpeculationMode
from outrider.operator.spec.access import Access, ApiKeysSecretRef, TlsSecretRef
from outrider.operator.spec.document import (
    SpecError,
    checked_mapping,
    read_document,
    read_documents,
)
from outrider.operator.spec.engine import (
    DeviceKind,
    DraftEngine,
    EngineSpec,
    Parallelism,
    Pipeline,
    TargetEngine,
    TargetParallelism,
)
from outrider.operator.spec.model import DraftModel, EmbeddingsFrom, ModelSource, TargetModel
from outrider.operator.spec.part import SpecPart
from outrider.operator.spec.pods import (
    AccessMode,
    Cache,
    CacheType,
    Resources,
    Strategy,
    Update,
    read_template,
)
from outrider.operator.spec.roles import (
    Draft,
    DraftScaling,
    Offload,
    Placement,
    Requests,
    RoleSpec,
    Scaling,
    ScalingMode,
    Target,
)
from outrider.operator.spec.scaler import ScaledRole, SpeculativeRoleScaler, read_scaler
from outrider.operator.spec.service import (
    ServiceReader,
    Spec,
    SpeculativeService,
    Suspend,
    load,
    load_document,
)
from outrider.operator.spec.speculation import (
    DraftShrink,
    Link,
    Speculation,
)
from outrider.operator.spec.surroundings import (
    Automatic,
    EndpointPicker,
    NetworkPolicy,
    Topology,
    TopologyPolicy,
)

__all__ = [
    "Access",
    "AccessMode",
    "ApiKeysSecretRef",
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
    "Link",
    "ModelSource",
    "NetworkPolicy",
    "Offload",
    "Parallelism",
    "Pipeline",
    "Placement",
    "Requests",
    "Resources",
    "RoleSpec",
    "ScaledRole",
    "Scaling",
    "ScalingMode",
    "ServiceReader",
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
    "TargetParallelism",
    "TlsSecretRef",
    "Topology",
    "TopologyPolicy",
    "Update",
    "checked_mapping",
    "load",
    "load_document",
    "read_document",
    "read_documents",
    "read_scaler",
    "read_template",
]
