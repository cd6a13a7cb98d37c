"""Answers keep the form that was asked for, the same with a draft and without."""

import re

import numpy as np
import pytest
from llguidance import LLMatcher, LLTokenizer

from outrider.kernels.masks import forbid
from outrider.worker.grammar import Grammars, Words
from outrider.worker.messages import Finish
from outrider.worker.sampling import Sampling
from tests.unit.worker.fakes import VOCABULARY
from tests.unit.worker.test_speculation import PROMPT, Pair

END = 0
TOKENS = [b"<end>", *(bytes([c]) for c in b"abcdefghijklmnop0123456789"), b"ab", b"cd", b"12"]
TOKENS += [b"?" * (i + 1) for i in range(VOCABULARY - len(TOKENS))]
FORMS = ["[a-d]{20,40}", "(ab|cd[0-9]+){5,9}e", "abcdabcdabcd", "((a|b)(c|d)?[0-9]){6,12}"]
SAMPLINGS = [Sampling(), Sampling(temperature=1.0, seed=3, repetition_penalty=1.3)]


def tokenizer() -> LLTokenizer:
    words = Words(TOKENS, [END], (END,))
    built = LLTokenizer(words, n_vocab=VOCABULARY, eos_token=[END])  # type: ignore[arg-type]
    words.longest_first = built.greedy_tokenize
    return built


def pair_for(source: str, sampling: Sampling, draft_passes: int, noise: float = 1.0) -> Pair:
    """Has answered one request for a form."""
    grammars = Grammars(tokenizer)
    grammars.compiled(source).result()
    pair = Pair(sampling=sampling, draft_passes=draft_passes, grammars=grammars, noise=noise)
    pair.submit(PROMPT, 200, grammar=source, end_ids=(END,))
    return pair


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("sampling", SAMPLINGS)
def test_an_answer_has_its_form_and_does_not_depend_on_the_draft(
    form: str, sampling: Sampling
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
    pair = pair_for(source, Sampling(temperature=0.7, seed=5), 6, noise=0.2)
    assert pair.run().usage.accepted_rows > 10


def test_guesses_outside_the_form_are_not_verified() -> None:
    source = LLMatcher.grammar_from_regex("[a-b]{40,60}")
    pair = pair_for(source, Sampling(temperature=0.7, seed=5), 6)
    usage = pair.run().usage
    assert usage.passes_with_nodes > 10
    assert usage.draft_rows < usage.passes_with_nodes


def test_a_grammar_that_fails_ends_its_request_alone() -> None:
    pair = pair_for("no grammar at all", Sampling(), 0)
    step = pair.target.next(pair.now)
    with pytest.raises(RuntimeError, match="the form of an answer"):
        pair.target_runner.run(step)
    pair.target.fail(step, "failed", pair.now)  # type: ignore[arg-type]
    assert pair.finished().finish is Finish.FAILED  # type: ignore[union-attr]


def test_a_request_waits_for_its_grammar_without_keeping_the_engine() -> None:
    pair = Pair(grammars=Grammars(tokenizer))
    grammar = LLMatcher.grammar_from_regex("ab")
    pair.submit(PROMPT, 20, grammar=grammar, end_ids=(END,))
    while (step := pair.target.next(pair.now)) is None:
        assert pair.target.patience(pair.now) is not None
    (part,) = step.parts
    assert part.sequence.submit.grammar == grammar


def test_tokens_without_a_bit_are_forbidden() -> None:
    row = np.arange(20, dtype=np.float32)
    forbid(row, np.array([0b10000001, 0b10], np.uint8))
    assert np.flatnonzero(row > -np.inf).tolist() == [0, 7, 9]
