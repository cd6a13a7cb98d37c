"""A form for answers of the hashed model, whose grammar is compiled when a test says so."""

from threading import Event

import numpy as np
from llguidance import LLMatcher, LLTokenizer

from outrider.kernels.sampling import reference
from outrider.kernels.sampling.gumbel_max import Sampler
from outrider.worker.sampling.grammar import Grammars
from outrider.worker.sampling.grammar_tokenizer import GrammarTokenizer
from outrider.worker.sampling.params import SamplingParams
from tests.unit.worker.pipeline.hash_stages import VOCABULARY, HashCut, Path, logits_of, value_of

FORM = LLMatcher.grammar_from_regex("[a-d]*")
FORM_TOKENS = 4
"""The first so many keep it."""
FORM_PROMPT = (1, 2, 3)
"""No other prompt begins with its first token."""
END = VOCABULARY
"""A token that the model has no logit for."""


class FormCut(HashCut):
    """The hashed model, whose answers to `FORM_PROMPT` keep the form."""

    def next_token(self, path: Path, prompt: int, sampling: SamplingParams) -> int:
        """Return what plain decoding samples after a path, whose first `prompt` tokens are one."""
        if path[0] != FORM_PROMPT[0]:
            return super().next_token(path, prompt, sampling)
        logits = logits_of(value_of(self.stages + 1, path))
        adjusted = reference.adjust(logits, path[:prompt], path[prompt:], sampling).copy()
        adjusted[FORM_TOKENS:] = -np.inf
        sampler = Sampler(len(logits))
        return int(sampler.sample(adjusted[None], np.array([len(path)]), sampling)[0])


def tokenizer() -> LLTokenizer:
    """Build the tokenizer of tokens a, b, c and so on."""
    tokens = [bytes([ord("a") + token]) for token in range(VOCABULARY)]
    words = GrammarTokenizer([*tokens, b"<end>"], [END], (END,))
    built = LLTokenizer(words, n_vocab=END + 1, eos_token=[END])  # type: ignore[arg-type]
    words.longest_first = built.greedy_tokenize
    return built


def held_grammars(may_compile: Event) -> Grammars:
    """Return grammars that are compiled once `may_compile` is set."""

    def build() -> LLTokenizer:
        assert may_compile.wait(60)
        return tokenizer()

    return Grammars(build)
