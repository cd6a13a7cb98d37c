"""References of a JSON Schema (`$ref`): which of its own parts they name, as llguidance reads them.

A reference is a JSON Pointer, an `$anchor` or an `$id`, from the base that its place has. What no
part has as a name is left to llguidance, which refuses it by that name: nothing is fetched.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote, urljoin

DATA = frozenset(("const", "enum", "default", "examples"))
"""Keywords whose values are data, in which `$ref` means nothing."""
BY_NAME = frozenset(
    ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas", "dependencies")
)
"""Keywords whose values name schemas; the names are no keywords."""

MAX_BASE = 2048
"""Most characters of a base: each reference below it is joined to it."""
ROOT = "json-schema:///"
"""Base of a schema without an `$id`."""


@dataclass(frozen=True, slots=True)
class PartPlace:
    """Where a part stands: in which list or mapping, under which key, below which base."""

    parent: Any
    key: str | int
    base: str


@dataclass(slots=True)
class References:
    """The parts of one schema, by name; each of its mappings and lists is one object alone."""

    root: Any
    _named: dict[str, Any] = field(default_factory=dict)
    """Schemas by their `$id`, and by base and `$anchor`."""
    _places: dict[int, PartPlace] = field(default_factory=dict)
    """Places of the schema's parts, by the `id()` of the part."""

    def __post_init__(self) -> None:
        """Find the names; raise `ValueError` if two different parts have one."""
        self._places[id(self.root)] = PartPlace(None, "#", ROOT)
        self._named[ROOT] = self.root
        parts = [(self.root, "")]
        while parts:
            part, word = parts.pop()
            outer = self._places[id(part)].base
            base = outer if word in BY_NAME else self._name(part, outer)
            for key, child in children(part, word):
                self._places[id(child)] = PartPlace(part, key, base)
                parts.append((child, "" if word in BY_NAME else str(key)))

    def target(self, part: Mapping[str, Any]) -> Any:
        """Return what the `$ref` of a part names, which may be data; None: nothing."""
        named, base = str(part["$ref"]), _base(part, self._places[id(part)].base)
        whole = base + named if named.startswith("#") else urljoin(base, named)
        url, _, fragment = whole.partition("#")
        if fragment and not fragment.startswith("/"):
            return self._named.get(f"{url}#{fragment}")
        found = self._named.get(url)
        for key in unquote(fragment).split("/")[1:]:
            found = _child(found, key.replace("~1", "/").replace("~0", "~"))
        return found

    def holds(self, part: Any) -> bool:
        """Return True for a part of the schema, False for data in it."""
        return id(part) in self._places

    def pointer(self, part: Any) -> str:
        """Return where a part stands, as a JSON Pointer from the root, `#`."""
        place = self._places[id(part)]
        keys = []
        while place.parent is not None:
            keys.append(str(place.key).replace("~", "~0").replace("/", "~1"))
            place = self._places[id(place.parent)]
        return "/".join(["#", *reversed(keys)])

    def replace(self, part: Any, new: Any) -> None:
        """Put something else where a part stands that is not the root."""
        place = self._places[id(part)]
        place.parent[place.key] = new

    def _name(self, part: Any, outer: str) -> str:
        """Remember the names of a part; return the base of what it holds."""
        if not isinstance(part, Mapping):
            return outer
        base = _base(part, outer)
        if len(base) > MAX_BASE:
            raise ValueError(f"an $id, with those around it, has more than {MAX_BASE} characters")
        names = [base] if base != outer else []
        anchors = (part.get("$anchor"), str(part.get("$id", "")).partition("#")[2])
        names += [f"{base}#{anchor}" for anchor in anchors if anchor]
        for name in names:
            if self._named.setdefault(name, part) != part:
                raise ValueError(f"two different schemas have the $id or $anchor {name!r}")
        return base


def _base(part: Mapping[str, Any], outer: str) -> str:
    """Return the base of the references of a part."""
    given = part.get("$id")
    return urljoin(outer, given.partition("#")[0]) if isinstance(given, str) else outer


def children(part: Any, word: str) -> Iterator[tuple[str | int, Any]]:
    """Yield the mappings and lists that the value of a keyword holds; empty: that of none."""
    is_schema = isinstance(part, Mapping) and word not in BY_NAME
    for key, child in part.items() if isinstance(part, Mapping) else enumerate(part):
        if isinstance(child, dict | list) and not (is_schema and key in DATA):
            yield key, child


def _child(part: Any, key: str) -> Any:
    if isinstance(part, list):
        return part[int(key)] if key.isdecimal() and int(key) < len(part) else None
    return part.get(key) if isinstance(part, Mapping) else None
