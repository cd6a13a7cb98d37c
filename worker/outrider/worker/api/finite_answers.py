"""Parts of a JSON Schema that answers of finite length fit.

A grammar knows of none that has no end: an object that requires one of its own kind is begun and
never ends. A part is finite if all that an answer of its form must hold is: the least fixed point
of rules `part <- all of these parts`, found in time linear in their size (Dowling and Gallier,
Linear-time algorithms for testing the satisfiability of propositional Horn formulae, 1984). What
several schemas of one `allOf` ask for together is not put together: each is judged by itself.
"""

import json
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from outrider.worker.api.schema_references import References

Key = tuple[int, str]
"""The `id()` of a part, and which choice of it; empty: all of it."""
NOTHING: Key = (0, "false")
"""What nothing fits."""
ENDING = ("string", "number", "integer", "boolean", "null")


def without_endless(schema: str) -> str:
    """Return a schema, as JSON, that the same answers fit, without references to endless parts.

    Raises `ValueError` if no answer of finite length fits it, or a name in it is no one part's.
    """
    root = json.loads(schema)
    if not isinstance(root, Mapping):
        return schema
    rules = Rules(References(root))
    finite = rules.finite()
    if (id(root), "") not in finite:
        raise ValueError(f"no answer fits it: {rules.reason(finite)}")
    endless = [part for part in rules.parts if "$ref" in part and (id(part), "") not in finite]
    for part in endless:
        rules.references.replace(part, False)  # llguidance does the rest
    return json.dumps(root) if endless else schema


@dataclass(slots=True)
class Rules:
    """What answers must hold that fit the parts of a schema which its root leads to."""

    references: References
    parts: list[Mapping[str, Any]] = field(default_factory=list)
    _rules: dict[Key, list[list[Key]]] = field(default_factory=lambda: defaultdict(list))
    """For each part or choice the ways to fit it, each the parts that have to be fitted."""
    _part_of: dict[int, Mapping[str, Any]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Find the rules."""
        self._key(self.references.root)
        for part in self.parts:  # which grows
            for head, needs in self._of(part):
                self._rules[head].append(needs)

    def finite(self) -> set[Key]:
        """Return which parts and choices answers of finite length fit."""
        users: dict[Key, list[tuple[Key, set[Key]]]] = defaultdict(list)
        found: set[Key] = set()
        ready: deque[Key] = deque()
        for head, ways in self._rules.items():
            for needs in ways:
                open_needs = set(needs)
                for need in open_needs:
                    users[need].append((head, open_needs))
                if not needs:
                    ready.append(head)
        while ready:
            if (key := ready.popleft()) in found:
                continue
            found.add(key)
            for head, open_needs in users[key]:
                open_needs.discard(key)
                if not open_needs:
                    ready.append(head)
        return found

    def reason(self, finite: set[Key]) -> str:
        """Say why the root is not among what is finite: where it leads back, or what fits
        nothing."""
        key: Key = (id(self.references.root), "")
        seen: dict[Key, None] = {}
        while key not in seen and self._rules.get(key):
            seen[key] = None
            key = next(need for need in self._rules[key][0] if need not in finite)
        last = next(self._part_of[one] for one, choice in reversed(seen) if not choice)
        place = self.references.pointer(last)
        if key not in seen:
            return f"nothing fits what {place} needs"
        return f"{place} leads back to {self.references.pointer(self._part_of[key[0]])} for ever"

    def _key(self, schema: Any) -> Key | None:
        """Return the key of a part, which gets rules too; None: anything may fit it."""
        if schema is False:
            return NOTHING
        if not isinstance(schema, Mapping) or not self.references.holds(schema):
            return None
        if id(schema) not in self._part_of:
            self._part_of[id(schema)] = schema
            self.parts.append(schema)
        return id(schema), ""

    def _keys(self, schemas: Iterable[Any]) -> list[Key]:
        return [key for key in map(self._key, schemas) if key is not None]

    def _of(self, part: Mapping[str, Any]) -> Iterator[tuple[Key, list[Key]]]:
        """Yield the rules of a part: a head, and what it needs."""
        self._keys(_allowed(part))
        needs = self._keys(_list(part, "allOf"))
        if "$ref" in part:
            needs += self._keys([self.references.target(part)])
        choices: dict[str, list[list[Key]]] = {
            word: [self._keys([one]) for one in _list(part, word)]
            for word in ("anyOf", "oneOf")
            if isinstance(part.get(word), list)
        }
        if not part.keys() & {"const", "enum"}:
            choices["type"] = [self._keys(held) for held in _held_by_types(part)]
        for choice, ways in choices.items():
            needs.append((id(part), choice))
            for way in ways:
                yield (id(part), choice), way
        yield (id(part), ""), needs


def _allowed(part: Mapping[str, Any]) -> Iterator[Any]:
    """Yield what an answer may hold."""
    for word in ("properties", "patternProperties"):
        named = part.get(word)
        yield from named.values() if isinstance(named, Mapping) else ()
    yield from (part.get(word) for word in ("additionalProperties", "additionalItems", "items"))
    yield from (*_list(part, "items"), *_list(part, "prefixItems"))


def _held_by_types(part: Mapping[str, Any]) -> Iterator[list[Any]]:
    """Yield for each type of answers what one of it must hold at least."""
    types = part.get("type", ["object", "array", *ENDING])
    for one in types if isinstance(types, list) else [types]:
        match one:
            case "object":
                yield _required(part)
            case "array":
                yield _first_items(part)
            case _:
                yield []


def _required(part: Mapping[str, Any]) -> list[Any]:
    properties = part.get("properties")
    named = properties if isinstance(properties, Mapping) else {}
    # patterns of names are read by the grammar's own rules: what may have one may be anything
    other = True if "patternProperties" in part else part.get("additionalProperties", True)
    return [named.get(name, other) for name in _list(part, "required") if isinstance(name, str)]


def _first_items(part: Mapping[str, Any]) -> list[Any]:
    least = part.get("minItems", 0)
    least = max(least, 0) if isinstance(least, int) else 0
    items = part.get("items", True)
    first = items if isinstance(items, list) else _list(part, "prefixItems")
    rest = part.get("additionalItems", True) if isinstance(items, list) else items
    return [*first[:least], *([rest] if least > len(first) else [])]


def _list(part: Mapping[str, Any], word: str) -> list[Any]:
    """Return the value of a keyword whose values are lists; what is none is refused later."""
    value = part.get(word)
    return value if isinstance(value, list) else []
