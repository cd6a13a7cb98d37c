"""Reader of YAML documents into plain data; refuses what YAML would accept silently.

Knows nothing of the data's meaning.
"""

from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field
from typing import Any

import yaml

MAX_VALUES = 1_000_000
"""Most values of a document; aliases make many of few lines."""
SHOWN = 40
"""Characters that are shown of a value that cannot be read."""
UNREADABLE = (ValueError, LookupError, AttributeError, OverflowError)
"""What PyYAML raises at a plain value that does not fit its tag."""


class SpecError(ValueError):
    """A service description that cannot be used; one line for each problem."""


class _Loader(yaml.SafeLoader):
    """Safe YAML in which a repeated key is an error and a date stays text."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        keys: set[str] = set()
        for key in (key for key, _ in node.value if isinstance(key, yaml.ScalarNode)):
            if key.value in keys:
                raise yaml.MarkedYAMLError(
                    problem=f"the key {key.value!r} is there twice", problem_mark=key.start_mark
                )
            keys.add(key.value)
        return super().construct_mapping(node, deep)

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        """Name the place of a plain value that cannot be read, such as a number of 5,000 digits."""
        try:
            return super().construct_object(node, deep)
        except UNREADABLE:
            if not isinstance(node, yaml.ScalarNode):
                raise
            kind = node.tag.rpartition(":")[2]
            shown = f"{node.value[:SHOWN]!r}{'…' * (len(node.value) > SHOWN)}"
            raise yaml.MarkedYAMLError(
                problem=f"{shown} cannot be read as {kind}", problem_mark=node.start_mark
            ) from None


@dataclass(frozen=True, slots=True)
class Document:
    """One YAML document, with the lines of its fields."""

    number: int
    """Number of the document in its text, from 1."""
    value: Any
    _node: yaml.Node = field(repr=False)

    def line(self, path: str = "") -> int:
        """Return the line, from 1, of the field at a path such as `spec.target.engine.threads`; of
        the part that lacks it, if it is missing; of the document's beginning without a path."""
        node, line, rest = self._node, self._node.start_mark.line, path
        while found := max(_parts(node, rest), default=None, key=lambda part: len(part[0])):
            key, line, node = found
            rest = rest[len(key) + 1 :]
        return line + 1


def _parts(node: yaml.Node, path: str) -> Iterator[tuple[str, int, yaml.Node]]:
    """Yield the parts of a node with which a path may begin: key, line from 0, and value. A key may
    hold dots itself."""
    if isinstance(node, yaml.MappingNode):
        parts = [(str(key.value), key.start_mark.line, value) for key, value in node.value]
    elif isinstance(node, yaml.SequenceNode):
        parts = [(str(at), value.start_mark.line, value) for at, value in enumerate(node.value)]
    else:
        return
    yield from (part for part in parts if part[0] and f"{path}.".startswith(f"{part[0]}."))


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if not tag.endswith(":timestamp")]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def read_document(text: str) -> dict[Any, Any]:
    """Return the mapping in `text`; raise `SpecError` with line and column, both from 1."""
    documents = list(read_documents(text))
    if len(documents) != 1:
        raise SpecError(f"expected one YAML document, found {len(documents) or 'none'}")
    return checked_mapping(documents[0].value)


def read_documents(text: str) -> Iterator[Document]:
    """Yield each document that is not empty; raise `SpecError` with line and column, both from 1,
    at one that is not YAML."""
    number = 0
    try:
        loader = _Loader(text)
        while loader.check_node():
            node = loader.get_node()
            assert node is not None, "check_node() found one"
            number += 1
            if (value := loader.construct_document(node)) is not None:
                yield Document(number, value, node)
    except yaml.MarkedYAMLError as error:
        raise SpecError(f"{_place(error.problem_mark)}not YAML: {error.problem}") from None
    except yaml.reader.ReaderError as error:
        raise SpecError(_unprintable(text, error.position)) from None
    except yaml.YAMLError as error:
        raise SpecError(f"not YAML: {error}") from None
    except RecursionError:
        raise SpecError("nested too deeply") from None


def checked_mapping(document: Any) -> dict[Any, Any]:
    """Return a document that is a mapping of not too many values; raise `SpecError` for others."""
    try:
        count = _count(document, {})
    except RecursionError:
        raise SpecError("nested too deeply") from None
    if not isinstance(document, dict):
        raise SpecError(f"expected a mapping of keys to values, found {type(document).__name__}")
    if count > MAX_VALUES:
        raise SpecError(f"{count} values, aliases (*) included; at most {MAX_VALUES} are read")
    return document


def _count(value: Any, known: dict[int, int]) -> int:
    """Return the values in and below one; `known` has those of parts by id, 0 while they are
    counted."""
    if not isinstance(value, dict | list | tuple):
        return 1
    if known.get(id(value)) == 0:
        raise SpecError("an alias (*) stands within what it names")
    if id(value) not in known:
        known[id(value)] = 0
        members = value.values() if isinstance(value, dict) else value
        known[id(value)] = 1 + sum(_count(member, known) for member in members)
    return known[id(value)]


def _unprintable(text: str, position: int) -> str:
    """Name the place of a character that YAML does not allow."""
    before = text[:position]
    line, column = before.count("\n") + 1, position - before.rfind("\n")
    character = f"U+{ord(text[position]):04X}"
    return f"line {line}, column {column}: not YAML: the character {character} is not allowed"


def _place(mark: Any) -> str:
    return f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
