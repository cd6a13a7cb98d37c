"""What the operator has set of a live object, by the API server's own account of who owns what."""

import json
from collections.abc import Mapping
from typing import Any

from outrider.operator.naming import FIELD_MANAGER
from tests.kube.space import Object


def applied(live: Object) -> Object:
    """What the operator has set of an object, with the values that it has now."""
    entries = live["metadata"]["managedFields"]
    own = [e for e in entries if (e["manager"], e["operation"]) == (FIELD_MANAGER, "Apply")]
    (entry,) = own
    found: Object = named_by(live, entry["fieldsV1"])
    return found


def named_by(live: Any, fields: Mapping[str, Any]) -> Any:
    """The part of a value that `fieldsV1` names; a list of no known key is taken whole."""
    below = {key: inner for key, inner in fields.items() if key != "."}
    if not below:
        return live
    if isinstance(live, list):
        keys = {key.removeprefix("k:"): inner for key, inner in below.items()}
        return [named_by(one, _fields_of(one, keys)) for one in live]
    return {k[2:]: named_by(live[k[2:]], inner) for k, inner in below.items()}


def _fields_of(one: Object, keys: Mapping[str, Any]) -> Mapping[str, Any]:
    """Of a list's member, which `k:` names by some of its fields."""
    for key, inner in keys.items():
        if json.loads(key).items() <= one.items():
            found: Mapping[str, Any] = inner
            return found
    raise AssertionError(f"nobody has applied {one}")
