"""An InferencePool, by which gateways of the Gateway API spread requests over the targets.

Its v1 needs the name of an endpoint picker, which is somebody else's to run.
"""

from collections.abc import Mapping

from outrider.contract.ports import HTTP
from outrider.contract.settings import Role
from outrider.operator.kinds import INFERENCE_POOL
from outrider.operator.manifests.child import Object, Owner, child
from outrider.operator.naming import selector
from outrider.operator.spec import EndpointPicker


def pool(owner: Owner, picker: EndpointPicker, leads: Mapping[str, str]) -> Object:
    """The targets that answer; `leads` are their labels beside those of the role."""
    reference = {
        "group": "",
        "kind": "Service",
        "name": picker.name,
        "port": {"number": picker.port},
        "failureMode": picker.failure_mode.value,
    }
    spec = {
        "selector": {"matchLabels": {**selector(owner.name, Role.TARGET), **leads}},
        "targetPorts": [{"number": HTTP}],
        "endpointPickerRef": reference,
    }
    return child(INFERENCE_POOL, owner, owner.name, spec=spec)
