"""Answers keep the form that was asked for, the same with a draft and without."""

import re
from threading import Event

import numpy as np
import pytest
from llguidance import LLMatcher, LLTokenizer

from outrider.kernels.sampling.penalties import forbid
from outrider.worker.api.response_format import ResponseFormat, ResponseFormats, check_multiples
from outrider.worker.errors import InvalidField, ModelError
from outrider.worker.messages import Finish
from outrider.worker.sampling.grammar import Grammars
from outrider.worker.sampling.grammar_tokenizer import GrammarTokenizer
from outrider.worker.sampling.params import SamplingParams
from outrider.worker.tree.walk import ROOT, paths
from tests.unit.worker.fakes import VOCABULARY
from tests.unit.worker.speculation.test_speculation import PROMPT, Pair

END = 0
TOKENS = [b"<end>", *(bytes([c]) for c in b"abcdefghijklmnop0123456789"), b"ab", b"cd", b"12"]
TOKENS += [b"?" * (i + 1) for i in range(VOCABULARY - len(TOKENS))]
FORMS = ["[a-d]{20,40}", "(ab|cd[0-9]+){5,9}e", "abcdabcdabcd", "((a|b)(c|d)?[0-9]){6,12}"]
SAMPLINGS = [SamplingParams(), SamplingParams(temperature=1.0, seed=3, repetition_penalty=1.3)]


def tokenizer() -> LLTokenizer:
    words = GrammarTokenizer(TOKENS, [END], (END,))
    built = LLTokenizer(words, n_vocab=VOCABULARY, eos_token=[END])  # type: ignore[arg-type]
    words.longest_first = built.greedy_tokenize
    return built


def pair_for(source: str, sampling: SamplingParams, draft_passes: int, noise: float = 1.0) -> Pair:
    """Has answered one request for a form."""
    grammars = Grammars(tokenizer)
    grammars.compiled(source).result()
    pair = Pair(sampling=sampling, draft_passes=draft_passes, grammars=grammars, noise=noise)
    pair.submit(PROMPT, 200, grammar=source, end_ids=(END,))
    return pair


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("sampling", SAMPLINGS)
def test_an_answer_has_its_form_and_does_not_depend_on_the_draft(
    form: str, sampling: SamplingParams
) -> None:
    source = LLMatcher.grammar_from_regex(form)
    alone, drafted = (pair_for(source, sampling, passes) for passes in (0, 6))
    assert alone.run().finish is drafted.run().finish is Finish.STOP
    text = drafted.text()
    assert text == alone.text()
    assert text[-1] == END
    assert re.fullmatch(form.encode(), b"".join(TOKENS[token] for token in text[:-1]))


def test_guesses_within_the_form_are_accepted() -> None:
    source = LLMatcher.grammar_from_regex("(.|\\n){400,600}")
    pair = pair_for(source, SamplingParams(temperature=0.7, seed=5), 6, noise=0.2)
    assert pair.run().usage.accepted_rows > 10


def test_guesses_outside_the_form_are_not_verified() -> None:
    source = LLMatcher.grammar_from_regex("[a-b]{40,60}")
    pair = pair_for(source, SamplingParams(temperature=0.7, seed=5), 6)
    usage = pair.run().usage
    assert usage.passes_with_nodes > 10
    assert usage.draft_rows < usage.passes_with_nodes


@pytest.mark.parametrize("draft_passes", [0, 6])
def test_a_grammar_that_fails_ends_its_request_alone(draft_passes: int) -> None:
    source = LLMatcher.grammar_from_json_schema('{"$ref": "#"}')
    pair = pair_for(source, SamplingParams(), draft_passes)
    finished = pair.run()
    assert finished.finish is Finish.GRAMMAR_FAILED
    assert "its form cannot be followed: NoExtension" in finished.detail


@pytest.mark.parametrize("draft_passes", [0, 6])
def test_a_grammar_whose_compilation_raises_ends_its_request_alone(draft_passes: int) -> None:
    def build() -> LLTokenizer:
        raise ModelError("no tokenizer")

    grammars = Grammars(build)
    grammars.compiled("any").exception()
    pair = Pair(draft_passes=draft_passes, grammars=grammars)
    pair.submit(PROMPT, 20, grammar="any", end_ids=(END,))
    finished = pair.run()
    assert finished.finish is Finish.GRAMMAR_FAILED
    assert finished.detail.endswith("ModelError: no tokenizer")


def test_tokens_committed_before_a_grammar_is_compiled_count_afterwards() -> None:
    may_compile = Event()

    def build() -> LLTokenizer:
        assert may_compile.wait(60)
        return tokenizer()

    grammar = Grammars(build).start(LLMatcher.grammar_from_regex("ab(g|h)"))
    grammar.commit(np.array([TOKENS.index(b"ab")], np.int32))
    assert not grammar.ready
    may_compile.set()
    logits = np.ones((1, VOCABULARY), np.float32)
    grammar.mask(logits, np.zeros((1, 0), np.int32))
    allowed = [TOKENS[token] for token in np.flatnonzero(logits[0] > -np.inf)]
    assert allowed == [b"g", b"h"]


def test_a_failed_grammar_allows_no_node_and_masks_no_row() -> None:
    grammars = Grammars(tokenizer)
    grammar = grammars.start("no grammar at all")
    assert grammar.failure is not None
    grammar.commit(np.array([1], np.int32))
    one = paths(np.array([ROOT], np.int32), np.array([1], np.int32), np.zeros(1, np.int32))
    assert not grammar.allowed(one, np.array([1], np.int32)).any()
    logits = np.ones((1, VOCABULARY), np.float32)
    grammar.mask(logits, np.zeros((1, 0), np.int32))
    assert (logits == 1).all()


@pytest.mark.parametrize(
    "schema",
    [
        '{"type": "integer", "multipleOf": 99999989}',
        '{"allOf": [{"multipleOf": 0}, {"multipleOf": 9973}, {"multipleOf": 9967}]}',
        '{"anyOf": [{"multipleOf": 1e999999999}]}',
        '{"multipleOf": 1e-999999999}',
    ],
)
def test_multiples_that_would_be_counted_for_minutes_are_refused(schema: str) -> None:
    with pytest.raises(InvalidField, match="multipleOf"):
        ResponseFormats(tokenizer).compile(ResponseFormat(json_schema=schema), ignore_end=False)


def test_a_form_that_no_answer_fits_is_refused() -> None:
    unwritable = ResponseFormat(regex="z")  # no token has this letter
    with pytest.raises(InvalidField, match="no answer fits it: NoExtension"):
        ResponseFormats(tokenizer).compile(unwritable, ignore_end=False)


def test_usual_multiples_are_counted() -> None:
    check_multiples('{"a": {"multipleOf": 0.01}, "b": {"multipleOf": 100}, "c": {"multipleOf": 7}}')


def test_a_request_waits_for_its_grammar_without_keeping_the_engine() -> None:
    pair = Pair(grammars=Grammars(tokenizer))
    grammar = LLMatcher.grammar_from_regex("ab")
    pair.submit(PROMPT, 20, grammar=grammar, end_ids=(END,))
    while (step := pair.target.next(pair.now)) is None:
        assert pair.target.max_wait(pair.now) is not None
    (part,) = step.parts
    assert part.sequence.submit.grammar == grammar


def test_tokens_without_a_bit_are_forbidden() -> None:
    row = np.arange(20, dtype=np.float32)
    forbid(row, np.array([0b10000001, 0b10], np.uint8))
    assert np.flatnonzero(row > -np.inf).tolist() == [0, 7, 9]
