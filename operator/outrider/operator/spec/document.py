"""Reader of one YAML document into plain data; refuses what YAML would accept silently.

Knows nothing of the data's meaning.
"""

from collections.abc import Hashable
from typing import Any

import yaml


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


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if not tag.endswith(":timestamp")]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def read_document(text: str) -> dict[Any, Any]:
    """Return the mapping in `text`; raise `SpecError` with line and column, both from 1."""
    try:
        documents = [d for d in yaml.load_all(text, _Loader) if d is not None]
    except yaml.MarkedYAMLError as error:
        raise SpecError(f"{_place(error.problem_mark)}not YAML: {error.problem}") from None
    except yaml.YAMLError as error:
        raise SpecError(f"not YAML: {error}") from None
    except RecursionError:
        raise SpecError("nested too deeply") from None
    if len(documents) != 1:
        raise SpecError(f"expected one YAML document, found {len(documents) or 'none'}")
    document = documents[0]
    if not isinstance(document, dict):
        raise SpecError(f"expected a mapping of keys to values, found {type(document).__name__}")
    return document


def _place(mark: Any) -> str:
    return f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
