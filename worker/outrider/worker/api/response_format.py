"""Response formats: any JSON object, a JSON Schema, a regular expression or a grammar, as a
grammar that llguidance reads.

Refuses what cannot be compiled, with the compiler's reason. Leaves token masks to
`sampling.grammar`.
"""

import asyncio
import contextlib
import json
import math
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from decimal import Decimal
from functools import partial
from typing import Any, NamedTuple

from llguidance import LLMatcher, LLTokenizer
from llguidance.gbnf_to_lark import any_to_lark

from outrider.contract.errors import RETRY_AFTER_SECONDS
from outrider.contract.inference import Format
from outrider.worker.api.call_tags import KNOWN_TAGS, call_grammar
from outrider.worker.api.closed_objects import with_closed_objects
from outrider.worker.api.finite_answers import without_endless
from outrider.worker.errors import InvalidField, QueueFull
from outrider.worker.host.threads import STAND_BACK, started
from outrider.worker.sampling.grammar_tokenizer import error_of
from outrider.worker.sampling.params import require

MAX_FORMAT_BYTES = 1 << 16
MAX_BYTES = {"grammar": 1 << 14}
"""Most bytes of a format, by kind, where they are not `MAX_FORMAT_BYTES`: a grammar of so many
takes up to 0.5 s to be read."""
SHOWN_CHARACTERS = 64
SHOWN_REASON = 300
MAX_DIGITS = 12
MAX_MULTIPLE = 100_000
THREADS = max(1, (os.cpu_count() or 1) // 2)
"""Threads that compile formats. With two on two processors, and none standing back, schemas that
take two seconds each made somebody else wait 0.97 s for a first token, and 0.05 so (0.045 in
calm)."""
ANY_OBJECT = '{"type": "object"}'
JSON_OPTIONS: Any = {
    "whitespace_pattern": r"\x20|\r?\n(\x20{0,20}|\t{0,6})",
    "lenient": True,
}
"""Options for grammars of JSON. Two parts may have a space between them, or a line break and
indentation: a small model writes blanks without end where it may. Lenient: what cannot be forced of
a schema is a warning."""
UNKNOWN_FORMAT = "Unknown format"
MAX_COMPILING = 16
"""Most formats that are compiled, or wait for it: one of 59 KB may take two seconds."""

FORM_KINDS = (*Format.__slots__, "grammar")
"""Fields of a `ResponseFormat` of which one is set."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResponseFormat(Format):
    """The format that an answer must have; one field is set."""

    grammar: str | None = None
    """A grammar in llguidance's syntax of Lark, or in llama.cpp's (GBNF); HTTP only."""
    of_tools: str | None = None
    """Name of the field with the tools of which one must be called, where that is the format: its
    objects are closed."""
    calls: "ResponseFormat | None" = None
    """Calls of tools, one of which the answer may be instead; HTTP only."""
    strict: bool = True
    """Whether a schema is refused of which a part cannot be forced; else its warnings name that."""

    @property
    def kind(self) -> str | None:
        """Name of the field that is set."""
        return next((name for name in FORM_KINDS if getattr(self, name) is not None), None)

    @property
    def field(self) -> str:
        """Name of the request's field that it is made from, for refusals."""
        return self.of_tools or f"format.{self.kind}"


class CompiledFormat(NamedTuple):
    """The grammar of a response format."""

    grammar: str
    """As llguidance reads it."""
    warnings: tuple[str, ...]
    """Parts of the schema that it does not force."""


@dataclass(slots=True)
class ResponseFormats:
    """Compiler of the response formats of one model."""

    build: Callable[[], LLTokenizer] | None
    """Makes the tokenizer that grammars are checked with, once; None: no token ends an answer."""
    call: str = call_grammar(KNOWN_TAGS, {}, 0)
    """Rule of a call that an answer may be instead, as the model writes one."""
    _tokenizer: LLTokenizer | None = None
    _compiling: int = 0
    _writing: ThreadPoolExecutor = field(default_factory=partial(started, 1, "formats"))
    _checking: ThreadPoolExecutor = field(
        default_factory=partial(started, THREADS, "grammars", STAND_BACK)
    )

    async def compiled(self, wanted: ResponseFormat, ignore_end: bool) -> CompiledFormat:
        """Return what `compile` does, from a thread that tokenizes no prompts.

        Raises `InvalidField`, or `QueueFull` where too many wait.
        """
        if self._compiling >= MAX_COMPILING:
            words = f"{self._compiling} response formats are being compiled"
            raise QueueFull(words, RETRY_AFTER_SECONDS)
        run = asyncio.get_running_loop().run_in_executor
        self._compiling += 1
        try:
            written = await run(self._writing, self._write, wanted, ignore_end)
            return await run(self._checking, self._check, wanted, written)
        finally:
            self._compiling -= 1

    def compile(self, wanted: ResponseFormat, ignore_end: bool) -> CompiledFormat:
        """Return the grammar of a response format; takes a while, so call it on a thread.

        Raises `InvalidField`.
        """
        return self._check(wanted, self._write(wanted, ignore_end))

    def _write(self, wanted: ResponseFormat, ignore_end: bool) -> list[str]:
        """Return the grammars of a format and of the calls that may come instead, then that of
        both. It is Python and must not stand back: all others wait for the interpreter."""
        grammar = self._written(wanted, ignore_end)
        if wanted.calls is None:
            return [grammar, grammar]
        calls = self._written(wanted.calls, ignore_end)
        return [grammar, calls, either(grammar, calls, self.call)]

    def _written(self, wanted: ResponseFormat, ignore_end: bool) -> str:
        which = wanted.kind
        if which is None or wanted.json_object is False:
            raise InvalidField("format", which, "set one of json_object, json_schema and regex")
        name, text = wanted.field, str(getattr(wanted, which))
        require(not ignore_end, "format", which, "an answer of a form ends: unset ignore_end")
        if self.build is None:
            raise InvalidField("format", which, "this model has no end-of-text token")
        size, most = len(text.encode()), MAX_BYTES.get(which, MAX_FORMAT_BYTES)
        require(size <= most, name, f"{size} bytes", f"at most {most} bytes")
        if self._tokenizer is None:
            self._tokenizer = self.build()
        with _refusals(wanted):
            return _grammar(wanted, text)

    def _check(self, wanted: ResponseFormat, written: list[str]) -> CompiledFormat:
        """Return what `compile` does: llguidance computes, without the interpreter."""
        assert self._tokenizer is not None, "who writes makes it"
        warnings: list[str] = []
        for form, grammar in zip((wanted, wanted.calls), written[:-1], strict=False):
            assert form is not None, "there are calls"
            with _refusals(form):
                warnings += _warnings(grammar, self._tokenizer, form.strict)
        return CompiledFormat(written[-1], tuple(warnings))


@contextlib.contextmanager
def _refusals(wanted: ResponseFormat) -> Iterator[None]:
    """Refuse a format, by its field, for the reason that its grammar is refused."""
    try:
        yield
    except (ValueError, RecursionError) as error:
        reason = " ".join(str(error).split())  # on one line
        text = str(getattr(wanted, str(wanted.kind)))
        raise InvalidField(wanted.field, text[:SHOWN_CHARACTERS], reason[:SHOWN_REASON]) from error


def _warnings(grammar: str, tokenizer: LLTokenizer, strict: bool) -> tuple[str, ...]:
    """Return what a grammar does not force of its schema.

    Raises `ValueError` with the reason why no answer can have this format, not even a first token;
    if `strict`, also where more than the names of formats, which are annotations, is not forced.
    """
    is_error, says = LLMatcher.validate_grammar_with_warnings(grammar, tokenizer)
    unforced = [one for one in says if not one.startswith(UNKNOWN_FORMAT)]
    if is_error or (strict and unforced):
        raise ValueError(" ".join(unforced))
    state = LLMatcher(tokenizer, grammar, log_level=0)
    state.compute_bitmask()
    if state.is_error():
        raise ValueError(f"no answer fits it: {error_of(state)}")
    return tuple(says)


def check_multiples(schema: str) -> None:
    """Raise `ValueError` where llguidance would count for too long.

    It builds a state for each number below the least common multiple of what `multipleOf` asks for
    in one place (4 µs each on Zen 5); this bounds that of all of them together.
    """
    found: list[Decimal] = []

    def look(pairs: list[tuple[str, Any]]) -> None:
        found.extend(v for k, v in pairs if k == "multipleOf" and isinstance(v, Decimal))

    json.loads(schema, parse_float=Decimal, parse_int=Decimal, object_pairs_hook=look)
    product = 1
    for value in found:
        if not abs(value.adjusted()) <= MAX_DIGITS or len(value.as_tuple().digits) > MAX_DIGITS:
            raise ValueError(f"multipleOf: {value!s:.32} has too many digits")
    scale = Decimal(10) ** max((-int(value.as_tuple().exponent) for value in found), default=0)
    for value in found:
        product = math.lcm(product, int(value * scale)) or product  # llguidance refuses 0
        if product > MAX_MULTIPLE:
            raise ValueError(
                f"multipleOf: {value} is not allowed; the least common multiple of all, in units "
                f"of their last digit, may be at most {MAX_MULTIPLE}"
            )


def _grammar(wanted: ResponseFormat, text: str) -> str:
    match wanted.kind:
        case "json_object":
            return LLMatcher.grammar_from_json_schema(ANY_OBJECT, overrides=JSON_OPTIONS)
        case "json_schema":
            check_multiples(text)
            closed = with_closed_objects(text) if wanted.of_tools else text
            return LLMatcher.grammar_from_json_schema(
                without_endless(closed), overrides=JSON_OPTIONS
            )
        case "grammar":
            return json.dumps({"grammars": [{"lark_grammar": lark_of(text)}]})
        case _:
            return LLMatcher.grammar_from_regex(text)


def either(form: str, calls: str, call: str) -> str:
    """Return the grammar of answers that are of a form, or a call by the rule `call`.

    llguidance follows both at once in JSON. Of a form that is no JSON it drops the calls where a
    pattern of the form has taken more of the text than a word of a call can.
    """
    parts = {"form": form, "calls": calls}
    named = [{**json.loads(part)["grammars"][0], "name": name} for name, part in parts.items()]
    start = {"lark_grammar": f"start: @form | call\n{call}"}
    return json.dumps({"grammars": [start, *named]})


def lark_of(grammar: str) -> str:
    """Return a grammar in llguidance's syntax; raises `ValueError`."""
    try:
        return any_to_lark(grammar)
    except Exception as error:  # the converter raises nothing narrower
        raise ValueError(str(error)) from error
