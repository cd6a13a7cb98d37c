"""Readers of public traces of language-model services; a wrong column is refused by its name.

Azure: `AzureLLMInferenceTrace_*.csv` of github.com/Azure/AzurePublicDataset. Mooncake: JSON lines
of github.com/kvcache-ai/Mooncake. Neither holds text: only times, lengths, and, of Mooncake, which
prompts begin alike.
"""

import csv
import datetime
import json
import reprlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from outrider.operator.spec.document import SpecError
from outrider.simulator.traffic_description import TraceFormat

AZURE = ("TIMESTAMP", "ContextTokens", "GeneratedTokens")
MOONCAKE = ("timestamp", "input_length", "output_length")
MICROSECOND_DIGITS = 6
MOST_TOKENS = 1 << 30
"""Most tokens of a prompt or an answer."""


@dataclass(frozen=True, slots=True)
class Arrival:
    """One request to be."""

    at: float
    """Seconds since the start."""
    prompt: int
    """Tokens."""
    answer: int
    """Tokens, at least one."""
    blocks: tuple[int, ...] = ()
    """Numbers of the prompt's blocks of 512 tokens: equal ones, after equal ones, are equal."""


def read_trace(file: Path, form: TraceFormat) -> list[Arrival]:
    """Return the arrivals of a file by their time, the first at 0; raises `SpecError`."""
    reader = _azure if form is TraceFormat.AZURE else _mooncake
    try:
        with file.open(encoding="utf-8", newline="") as lines:
            found = sorted(reader(file, lines), key=lambda one: one.at)
    except OSError as error:
        raise SpecError(f"{file}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise SpecError(f"{file}: not UTF-8 text") from None
    if not found:
        raise SpecError(f"{file}: no requests")
    start = found[0].at
    return [Arrival(one.at - start, one.prompt, one.answer, one.blocks) for one in found]


def _azure(file: Path, lines: Iterator[str]) -> Iterator[Arrival]:
    rows = _rows(file, lines)
    header = [name.strip().lstrip("\ufeff") for name in next(rows, [])]
    _check_columns(f"{file}, line 1", header, AZURE)
    at, prompt, answer = (header.index(name) for name in AZURE)
    for number, row in enumerate(rows, start=2):
        if not row:
            continue
        place = f"{file}, line {number}"
        if len(row) != len(header):
            raise SpecError(f"{place}: {len(row)} columns, and line 1 has {len(header)}")
        yield Arrival(
            _moment(f"{place}, {AZURE[0]}", row[at]),
            _count(f"{place}, {AZURE[1]}", row[prompt], 1),
            max(1, _count(f"{place}, {AZURE[2]}", row[answer], 0)),
        )


def _rows(file: Path, lines: Iterator[str]) -> Iterator[list[str]]:
    rows = csv.reader(lines)
    try:
        yield from rows
    except csv.Error as error:
        raise SpecError(f"{file}, line {rows.line_num}: not CSV: {error}") from None


def _mooncake(file: Path, lines: Iterator[str]) -> Iterator[Arrival]:
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        place = f"{file}, line {number}"
        try:
            record = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise SpecError(f"{place}: not JSON: {error}") from None
        if not isinstance(record, dict):
            raise SpecError(f"{place}: expected an object, found {type(record).__name__}")
        _check_columns(place, list(record), MOONCAKE)
        at, prompt, answer = (record[name] for name in MOONCAKE)
        if isinstance(at, bool) or not isinstance(at, int | float) or not 0 <= at < 1e15:
            raise SpecError(f"{place}, timestamp: {at!r} is not allowed; allowed: milliseconds")
        yield Arrival(
            at / 1000,
            _count(f"{place}, input_length", prompt, 1),
            max(1, _count(f"{place}, output_length", answer, 0)),
            _blocks(place, record.get("hash_ids", [])),
        )


def _check_columns(place: str, found: Sequence[str], needed: Sequence[str]) -> None:
    missing = [name for name in needed if name not in found]
    if missing:
        raise SpecError(
            f"{place}: the column {missing[0]} is missing; found {', '.join(map(str, found))}; "
            f"needed: {', '.join(needed)}"
        )


def _moment(place: str, text: str) -> float:
    """Return seconds since 1970; Azure writes seven digits behind the second, Python reads six."""
    head, dot, rest = text.strip().partition(".")
    digits = rest[: len(rest) - len(rest.lstrip("0123456789"))]
    zone = rest[len(digits) :]
    try:
        parsed = datetime.datetime.fromisoformat(
            head + (f".{digits[:MICROSECOND_DIGITS]:0<{MICROSECOND_DIGITS}}" if dot else "") + zone
        )
    except ValueError:
        raise SpecError(
            f"{place}: {text!r} is not allowed; allowed: a time as 2023-11-16 18:15:46.6805900"
        ) from None
    return (parsed if parsed.tzinfo else parsed.replace(tzinfo=datetime.UTC)).timestamp()


def _count(place: str, value: Any, least: int) -> int:
    text = str(value).strip()
    number = int(text) if text.isdecimal() and len(text) <= len(str(MOST_TOKENS)) else -1
    if isinstance(value, bool) or not least <= number <= MOST_TOKENS:
        raise SpecError(
            f"{place}: {reprlib.repr(value)} is not allowed; allowed: an integer from {least} "
            f"to {MOST_TOKENS}"
        )
    return number


def _blocks(place: str, value: Any) -> tuple[int, ...]:
    if not isinstance(value, list) or not all(type(one) is int and one >= 0 for one in value):
        raise SpecError(f"{place}, hash_ids: {value!r} is not allowed; allowed: a list of integers")
    return tuple(value)
