"""The form that a request asks of its answer, as a grammar for the engine.

Refuses what cannot be compiled, with the compiler's reason. Leaves masks to `grammar`.
"""

from collections.abc import Callable
from dataclasses import dataclass

from llguidance import LLMatcher, LLTokenizer

from outrider.protos.v1 import inference_pb2 as pb
from outrider.worker.errors import InvalidField
from outrider.worker.sampling import require

MAX_FORM_BYTES = 1 << 16
SHOWN_CHARACTERS = 64
SHOWN_REASON = 300
ANY_OBJECT = '{"type": "object"}'


@dataclass(slots=True)
class Forms:
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
            grammar = _grammar(which, text)
            is_error, says = LLMatcher.validate_grammar_with_warnings(grammar, self._tokenizer)
        except ValueError as error:
            is_error, says = True, [str(error)]
        if is_error:
            reason = " ".join(" ".join(says).split())  # on one line
            raise InvalidField(name, text[:SHOWN_CHARACTERS], reason[:SHOWN_REASON])
        return grammar


def _grammar(which: str, text: str) -> str:
    match which:
        case "json_object":
            return LLMatcher.grammar_from_json_schema(ANY_OBJECT)
        case "json_schema":
            return LLMatcher.grammar_from_json_schema(text)
        case _:
            return LLMatcher.grammar_from_regex(text)
