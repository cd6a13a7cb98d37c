"""Fields of a status that the definitions in the cluster do not take, and that are left out.

Definitions may be older than the operator, and an API server refuses a status that has a field more
than they have as a whole. What it names is left out for a while, so that the rest is said; then it
is tried again. A field that the kind does not have is left out of every status, one whose value is
refused of that service's alone. Leaves writing to `report`.
"""

import copy
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from outrider.operator.cluster.client import INVALID, MISTYPED, ClusterError
from outrider.operator.cluster.kinds import ServiceKey

Object = dict[str, Any]
RETRY_SECONDS = 600.0
"""Time for which a field is left out; the definitions may have been upgraded meanwhile."""
NEEDED = frozenset(("conditions", "observedGeneration"))
"""Fields without which nothing is said."""
_UNDECLARED = re.compile(r"\.status\.([\w.]+): field not declared in schema")
_INVALID = re.compile(r"(?: is invalid: \[?|, )(?:status\.)?(\w+)[\w.\[\]]*: ")
"""Kubernetes 1.30 names the fields of a status without the status."""


@dataclass(slots=True)
class UnknownStatus:
    """The fields that are left out, by kind, path below `status`, and the service whose value is
    refused; None: no service can have the field."""

    _until: dict[tuple[str, str, ServiceKey | None], float] = field(default_factory=dict)
    _told: set[tuple[str, str, ServiceKey]] = field(default_factory=set)
    """What was news before: kind, fields and service."""

    def without(
        self, kind: str, service: ServiceKey, content: Mapping[str, Any], now: float
    ) -> Object:
        """Return a service's status, or its scaler's, without the fields that are left out at the
        time `now`, in seconds."""
        left = copy.deepcopy(dict(content))
        for (of, path, whose), until in self._until.items():
            if of == kind and whose in (None, service) and now < until:
                _remove(left, path.split("."))
        return left

    def learn(
        self,
        kind: str,
        service: ServiceKey,
        content: Mapping[str, Any],
        error: ClusterError,
        now: float,
    ) -> str:
        """Leave out what an error names of a status; return it in words, empty: it names nothing
        that could be left out."""
        self._until = {key: until for key, until in self._until.items() if now < until}
        known = self.without(kind, service, content, now)
        named = [path for path in _named(error) if _has(known, path.split("."))]
        whose = service if error.status == INVALID else None
        self._until |= {(kind, path, whose): now + RETRY_SECONDS for path in named}
        return ", ".join(f"status.{path}" for path in named)

    def is_news(self, kind: str, service: ServiceKey, named: str) -> bool:
        """Return True the first time that fields are left out of a service's status: they are tried
        again and again while the definitions stay as they are."""
        said = (kind, named, service)
        known = said in self._told
        self._told.add(said)
        return not known


def _named(error: ClusterError) -> Iterator[str]:
    """Yield the paths below `status` at which an API server takes offence."""
    if error.reason.startswith(MISTYPED):
        yield from dict.fromkeys(_UNDECLARED.findall(error.reason))
    elif error.status == INVALID:
        yield from dict.fromkeys(_INVALID.findall(error.reason))


def _has(content: Any, steps: list[str]) -> bool:
    """True if a status has a field that may be left out."""
    if steps[0] in NEEDED:
        return False
    for step in steps:
        if not isinstance(content, Mapping) or step not in content:
            return False
        content = content[step]
    return True


def _remove(content: Object, steps: list[str]) -> None:
    if _has(content, steps):
        *above, key = steps
        for step in above:
            content = content[step]
        del content[key]
