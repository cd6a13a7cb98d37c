"""Differences between an object in the cluster and what was applied. Pure.

The API server fills in defaults and rewrites some values ("0.5" becomes "500m"), so an object is
compared with what the server made of the same text, once that is known.
"""

import hashlib
import json
from collections.abc import Mapping
from typing import Any

Object = Mapping[str, Any]


def digest(value: Any) -> str:
    """Return ten hexadecimal digits that change with the content of plain JSON."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:10]


def projection(live: Any, wanted: Any) -> Any:
    """Return the parts of `live` that `wanted` sets; lists are taken whole, member by member."""
    if isinstance(wanted, Mapping) and isinstance(live, Mapping):
        return {key: projection(live[key], wanted[key]) for key in wanted if key in live}
    if isinstance(wanted, list) and isinstance(live, list) and len(live) == len(wanted):
        return [projection(a, b) for a, b in zip(live, wanted, strict=True)]
    return live


class AppliedCache:
    """Server's versions of one service's applied objects. Lost with the process, at the price of
    one more apply for each object that the server rewrites."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[str, Any]] = {}

    def same(self, wanted: Object, live: Object) -> bool:
        """Return True if applying `wanted` would change nothing of `live`."""
        part = projection(live, wanted)
        return bool(part == wanted) or self._known.get(_key(live)) == (digest(wanted), part)

    def learn(self, wanted: Object, answer: Object) -> None:
        """Record the server's answer to an apply of `wanted`."""
        part = projection(answer, wanted)
        if part == wanted:
            self._known.pop(_key(answer), None)
        else:
            self._known[_key(answer)] = (digest(wanted), part)

    def forget(self, live: Object) -> None:
        """Drop an object that is gone."""
        self._known.pop(_key(live), None)


def _key(live: Object) -> str:
    return str(live["metadata"]["uid"])
