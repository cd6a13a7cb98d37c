"""The form that a request asks of its answer, as a grammar for the engine.

Refuses what cannot be compiled, with the compiler's reason. Leaves masks to `grammar`.
"""

import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from llguidance import LLMatcher, LLTokenizer

from outrider.protos.v1 import inference_pb2 as pb
from outrider.worker.errors import InvalidField
from outrider.worker.sampling.grammar_tokenizer import error_of
from outrider.worker.sampling.params import require

MAX_FORM_BYTES = 1 << 16
SHOWN_CHARACTERS = 64
SHOWN_REASON = 300
MAX_DIGITS = 12
MAX_MULTIPLE = 100_000
ANY_OBJECT = '{"type": "object"}'


@dataclass(slots=True)
class ResponseFormats:
    """Forms of one model's answers."""

    build: Callable[[], LLTokenizer] | None
    """Makes the tokenizer that grammars are checked with, once; None: no token ends an answer."""
    _tokenizer: LLTokenizer | None = None

    def parse(self, form: pb.Format, ignore_end: bool) -> str:
        """The grammar of a format that is set; takes a while, so call it on a thread.

        Raises `InvalidField`.
        """
        which = form.WhichOneof("form")
        if which is None or (which == "json_object" and not form.json_object):
            raise InvalidField("format", which, "set one of json_object, json_schema and regex")
        name, text = f"format.{which}", str(getattr(form, which))
        require(not ignore_end, "format", which, "an answer of a form ends: unset ignore_end")
        if self.build is None:
            raise InvalidField("format", which, "this model has no end-of-text token")
        size = len(text.encode())
        require(size <= MAX_FORM_BYTES, name, f"{size} bytes", f"at most {MAX_FORM_BYTES} bytes")
        if self._tokenizer is None:
            self._tokenizer = self.build()
        try:
            if which == "json_schema":
                check_multiples(text)
            grammar = _grammar(which, text)
            problem = _problem(grammar, self._tokenizer)
        except (ValueError, RecursionError) as error:
            problem = str(error)
        if problem:
            reason = " ".join(problem.split())  # on one line
            raise InvalidField(name, text[:SHOWN_CHARACTERS], reason[:SHOWN_REASON])
        return grammar


def _problem(grammar: str, tokenizer: LLTokenizer) -> str:
    """Why no answer can have this form; empty: one can, as far as its first token tells."""
    is_error, says = LLMatcher.validate_grammar_with_warnings(grammar, tokenizer)
    if is_error:
        return " ".join(says)
    state = LLMatcher(tokenizer, grammar, log_level=0)
    state.compute_bitmask()
    return f"no answer fits it: {error_of(state)}" if state.is_error() else ""


def check_multiples(schema: str) -> None:
    """Raises `ValueError` where llguidance would count for too long.

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


def _grammar(which: str, text: str) -> str:
    match which:
        case "json_object":
            return LLMatcher.grammar_from_json_schema(ANY_OBJECT)
        case "json_schema":
            return LLMatcher.grammar_from_json_schema(text)
        case _:
            return LLMatcher.grammar_from_regex(text)
