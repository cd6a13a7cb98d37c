"""The description of a service as types that hold only allowed values; the CRDs follow from them.

Starts and contacts nothing; leaves the workers to `plan`. There are no floats: Kubernetes advises
against them in resources. Here are the names that other packages use.
"""

from outrider.operator.control.settings import SpeculationMode
from outrider.operator.spec.document import Document, SpecError, checked_mapping, read_documents
from outrider.operator.spec.engine import DeviceKind, EngineSpec
from outrider.operator.spec.model import EmbeddingsFrom
from outrider.operator.spec.part import SpecPart
from outrider.operator.spec.roles import Draft, Placement, RoleSpec
from outrider.operator.spec.scaler import SpeculativeRoleScaler
from outrider.operator.spec.service import SpeculativeService, Suspend, load, load_document

__all__ = [
    "DeviceKind",
    "Document",
    "Draft",
    "EmbeddingsFrom",
    "EngineSpec",
    "Placement",
    "RoleSpec",
    "SpecError",
    "SpecPart",
    "SpeculationMode",
    "SpeculativeRoleScaler",
    "SpeculativeService",
    "Suspend",
    "checked_mapping",
    "load",
    "load_document",
    "read_documents",
]
