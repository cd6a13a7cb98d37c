"""Objects with changes laid over them, as a JSON merge patch does (RFC 7396)."""

from collections.abc import Mapping
from typing import Any


def laid_over(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """Return a copy of `base` with everything that `over` says; None takes a key away."""
    whole = dict(base)
    for key, value in over.items():
        if value is None:
            whole.pop(key, None)
        elif isinstance(value, Mapping):
            below = whole.get(key)
            whole[key] = laid_over(below if isinstance(below, Mapping) else {}, value)
        else:
            whole[key] = value
    return whole
