"""Whether an object in the cluster is as it was applied, in what was applied.

Pure. The API server fills in defaults and writes some values its own way ("0.5" becomes "500m"), so
an object is compared with what the server made of the same text, once that is known.
"""

import hashlib
import json
from collections.abc import Mapping
from typing import Any

Object = Mapping[str, Any]


def digest(value: Any) -> str:
    """Ten hexadecimal digits that change with the content of plain JSON."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:10]


def projection(live: Any, wanted: Any) -> Any:
    """The parts of `live` that `wanted` speaks of; lists are taken whole, member by member."""
    if isinstance(wanted, Mapping) and isinstance(live, Mapping):
        return {key: projection(live[key], wanted[key]) for key in wanted if key in live}
    if isinstance(wanted, list) and isinstance(live, list) and len(live) == len(wanted):
        return [projection(a, b) for a, b in zip(live, wanted, strict=True)]
    return live


class Applied:
    """What the server made of one service's objects as they were applied; lost with the process, at
    the price of one more apply for each object that it writes its own way."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[str, Any]] = {}

    def same(self, wanted: Object, live: Object) -> bool:
        """Whether applying `wanted` would change nothing of `live`."""
        seen = projection(live, wanted)
        return bool(seen == wanted) or self._known.get(_key(live)) == (digest(wanted), seen)

    def learn(self, wanted: Object, answer: Object) -> None:
        """Takes what the server answered to an apply of `wanted`."""
        seen = projection(answer, wanted)
        if seen == wanted:
            self._known.pop(_key(answer), None)
        else:
            self._known[_key(answer)] = (digest(wanted), seen)

    def forget(self, live: Object) -> None:
        """An object is gone."""
        self._known.pop(_key(live), None)


def _key(live: Object) -> str:
    return str(live["metadata"]["uid"])
