"""YAML that cannot be read as one document ends in a line that names the place."""

import itertools

import pytest

from outrider.operator.spec.document import MAX_VALUES, SpecError, read_document, read_documents

TEN = "[x, x, x, x, x, x, x, x, x, x]"


def of_few_lines(levels: int) -> str:
    """A document of ten times as many values with each of its lines."""
    names = "abcdefghij"[:levels]
    lines = [f"a: &a {TEN}"]
    for before, name in itertools.pairwise(names):
        lines.append(f"{name}: &{name} [{', '.join([f'*{before}'] * 10)}]")
    return "\n".join(lines)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (f"a:\n  b: {'9' * 5000}", f"line 2, column 6: not YAML: '{'9' * 40}'… cannot be read"),
        ("a: !!int abc", "line 1, column 4: not YAML: 'abc' cannot be read as int"),
        ("a: !!int ''", "line 1, column 4: not YAML: '' cannot be read as int"),
        ("a: !!float abc", "line 1, column 4: not YAML: 'abc' cannot be read as float"),
        ("a: !!bool abc", "line 1, column 4: not YAML: 'abc' cannot be read as bool"),
        ("a: !!timestamp abc", "line 1, column 4: not YAML: 'abc' cannot be read as timestamp"),
        ("a: !!timestamp 2026-99-99", "line 1, column 4: not YAML: '2026-99-99' cannot be read"),
        ("a: 1\nb: \x07", "line 2, column 4: not YAML: the character U+0007 is not allowed"),
    ],
)
def test_a_value_that_cannot_be_read_is_named_with_its_place(text: str, line: str) -> None:
    with pytest.raises(SpecError) as refusal:
        read_document(text)
    assert str(refusal.value).startswith(line)
    assert "\n" not in str(refusal.value)


def test_aliases_that_make_too_many_values_are_refused_by_their_number() -> None:
    with pytest.raises(SpecError, match=rf"^\d+ values, .* at most {MAX_VALUES} are read$"):
        read_document(of_few_lines(9))


@pytest.mark.parametrize("text", ["a: &a [*a]", "a: &a {b: {c: *a}}", "&a {a: *a}"])
def test_an_alias_within_what_it_names_is_refused(text: str) -> None:
    with pytest.raises(SpecError, match="alias"):
        read_document(text)


def test_aliases_are_read_as_what_they_name() -> None:
    assert read_document("a: &a [1, 2]\nb: [*a, *a]") == {"a": [1, 2], "b": [[1, 2], [1, 2]]}
    assert len(read_document(of_few_lines(4))["d"]) == 10


@pytest.mark.parametrize(
    ("path", "line"),
    [
        ("", 3),
        ("a", 3),
        ("a.limits.example.com/gpu", 5),
        ("a.list.1", 6),
        ("a.list.7", 6),
        ("a.missing.below", 3),
        ("other", 3),
        ("c.merged", 7),
    ],
)
def test_a_path_leads_to_the_line_of_its_field_or_of_the_part_that_lacks_it(
    path: str, line: int
) -> None:
    text = (
        "# one\n---\na:\n  limits:\n    example.com/gpu: 1\n  list: [0, 1]\n"
        "b: &b {merged: 1}\nc:\n  <<: *b\n"
    )
    (document,) = read_documents(text)
    assert document.line(path) == line
