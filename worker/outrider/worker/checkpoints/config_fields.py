"""Typed access to the fields of a config.json."""

import logging
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from outrider.worker.errors import ModelError

logger = logging.getLogger(__name__)

MAX_COUNT = 2**31 - 1
"""Most of anything that a model has: what is counted here becomes lists and arrays."""


@dataclass(frozen=True, slots=True)
class ConfigFields:
    """Typed access to a config's fields; a missing or null field takes the default."""

    values: Mapping[str, Any]
    where: str

    def check(self, holds: bool, name: str, value: object, allowed: str) -> None:
        """Raise `ModelError` unless a field's value is one that is allowed."""
        if not holds:
            fault = "is missing" if value is None else f"{value!r} is not supported"
            raise ModelError(f"{self.where}: {name}: {fault}; allowed: {allowed}")

    def count(
        self, name: str, default: int | None = None, least: int = 1, most: int = MAX_COUNT
    ) -> int:
        value: Any = self.values.get(name)
        value = default if value is None else value
        holds = type(value) is int and least <= value <= most
        above = f" and at most {most}" if type(value) is int and value > most else ""
        self.check(holds, name, value, f"an integer of at least {least}{above}")
        return int(value)

    def number(self, name: str, default: float | None = None) -> float:
        value: Any = self.values.get(name)
        value = default if value is None else value
        holds = type(value) in (int, float) and 0 < value < math.inf
        self.check(holds, name, value, "a finite number above 0")
        return float(value)

    def numbers(self, name: str, count: int) -> tuple[float, ...]:
        """Read a list of so many numbers."""
        value: Any = self.values.get(name)
        holds = isinstance(value, list) and len(value) == count
        holds = holds and all(type(x) in (int, float) and 0 < x < math.inf for x in value)
        self.check(holds, name, value, f"{count} finite numbers above 0")
        return tuple(map(float, value))

    def ids(self, name: str) -> tuple[int, ...]:
        """Read a token id, or a list of them, or nothing."""
        size, ids = self._integers(name)
        holds = all(0 <= i < size for i in ids)
        self.check(holds, name, self.values.get(name), f"token ids in [0, {size})")
        return tuple(ids)

    def ends(self, name: str, given: Any = None) -> tuple[int, ...]:
        """Read end tokens, as `ids`; `given`: the value of no field here. An id that names no
        token, such as -1, ends nothing."""
        size, ids = self._integers(name, given)
        if odd := [i for i in ids if not 0 <= i < size]:
            logger.warning("%s: %s: %s: no tokens in [0, %d)", self.where, name, odd, size)
        return tuple(i for i in ids if 0 <= i < size)

    def _integers(self, name: str, given: Any = None) -> tuple[int, list[int]]:
        """Return the size of the vocabulary, and an integer, or a list of them, as a list."""
        value, size = self.values.get(name, given), self.count("vocab_size")
        ids = [] if value is None else value if isinstance(value, list) else [value]
        self.check(all(type(i) is int for i in ids), name, value, f"token ids in [0, {size})")
        return size, ids
