"""Merge of a user's `podTemplate` into the operator's. Pure.

Like a strategic merge: mappings join key by key, null removes a key, the lists of `MERGE_KEYS` join
member by member, any other list and any plain value replaces the old one. A volume that is given
another source loses its old one, for it may have one alone.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

TOLERATIONS = MappingProxyType({"tolerations": "key"})
"""Beyond what Kubernetes joins: a cluster's tolerations and a role's are meant together."""
KUBERNETES_KEYS = MappingProxyType(
    {
        "containers": "name",
        "env": "name",
        "ephemeralContainers": "name",
        "hostAliases": "ip",
        "imagePullSecrets": "name",
        "initContainers": "name",
        "ownerReferences": "uid",
        "ports": "containerPort",
        "resourceClaims": "name",
        "schedulingGates": "name",
        "topologySpreadConstraints": "topologyKey",
        "volumeDevices": "devicePath",
        "volumeMounts": "mountPath",
        "volumes": "name",
    }
)
"""Lists below a PodTemplateSpec, by the names of their fields, and the key by which Kubernetes' own
strategic merge joins their members (`x-kubernetes-patch-merge-key` of its OpenAPI document, which a
test asks)."""
MERGE_KEYS = {**KUBERNETES_KEYS, **TOLERATIONS}
VOLUMES = "volumes"


def merge(base: Any, over: Any, field: str = "") -> Any:
    """Return `base` with everything that `over` sets; `field` is the name of the field whose values
    they are."""
    if isinstance(over, Mapping):
        under = base if isinstance(base, Mapping) else {}
        joined = {key: value for key, value in under.items() if over.get(key, value) is not None}
        for key, value in over.items():
            if value is not None:
                old = joined.get(key)
                old = _keeping_sources(old, value) if key == VOLUMES else old
                joined[key] = merge(old, value, key)
        return joined
    if isinstance(over, list):
        return _members(base if isinstance(base, list) else [], over, MERGE_KEYS.get(field))
    return over


def _members(base: list[Any], over: list[Any], key: str | None) -> list[Any]:
    """Join two lists by a key, where all members have one and no two the same."""
    if key is None or not (_is_unique(key, base) and _is_unique(key, over)):
        return [merge(None, member) for member in over]
    joined = {member[key]: member for member in base}
    for member in over:
        joined[member[key]] = merge(joined.get(member[key]), member)
    return list(joined.values())


def _keeping_sources(base: Any, over: Any) -> Any:
    """Return volumes without those to which `over` gives a source of another kind."""
    if not isinstance(base, list) or not isinstance(over, list):
        return base
    given = {one["name"]: one for one in over if _has_text(one, "name")}
    return [one for one in base if not _has_text(one, "name") or _same_kind(one, given)]


def _same_kind(volume: Mapping[str, Any], given: Mapping[str, Mapping[str, Any]]) -> bool:
    other = given.get(volume["name"], {}).keys() - {"name"}
    return not other or bool(other & volume.keys())


def _has_text(member: Any, key: str) -> bool:
    return isinstance(member, Mapping) and isinstance(member.get(key), str)


def _is_unique(key: str, members: list[Any]) -> bool:
    found = [
        m[key] for m in members if isinstance(m, Mapping) and isinstance(m.get(key), str | int)
    ]
    return len(set(found)) == len(members)
