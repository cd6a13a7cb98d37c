"""Grammars: the tokens that keep an answer in its response format; masks are llguidance's.

A grammar's state follows the committed tokens of one sequence; a row of a pass looks at the state
after its own path. Compiling runs on a thread of its own. Leaves response formats of requests to
`api.response_format`, the vocabulary to `grammar_tokenizer`, and the selection of nodes to the
scheduler.
"""

from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from outrider.kernels.sampling.penalties import forbid
from outrider.worker.host.threads import STAND_BACK, started
from outrider.worker.sampling.grammar_tokenizer import error_of
from outrider.worker.tree.growth import Ints
from outrider.worker.tree.walk import Paths

if TYPE_CHECKING:  # needed by those requests alone that ask for a response format
    from llguidance import LLMatcher, LLTokenizer

REMEMBERED = 64
"""Compiled grammars that are kept for requests to come."""


@dataclass(slots=True)
class Grammar:
    """State of one sequence in the grammar of its response format."""

    compiled: "Future[LLMatcher]"
    _state: "LLMatcher | None" = None
    _committed: list[int] = field(default_factory=list)
    """Before it was compiled."""

    @property
    def ready(self) -> bool:
        """True if it is compiled; until then all but `commit` waits."""
        return self.compiled.done()

    @property
    def state(self) -> "LLMatcher":
        """State after the committed tokens; one that has failed allows nothing and stays failed.

        Raises what compiling it raised.
        """
        if self._state is None:
            self._state = self.compiled.result().deep_copy()
            self._state.try_consume_tokens(self._committed)
        return self._state

    @property
    def failed(self) -> bool:
        """True if nothing is allowed any more, or it could not be compiled."""
        return self.compiled.exception() is not None or self.state.is_error()

    @property
    def failure(self) -> str | None:
        """Reason why the answer has left its response format; None: it has not."""
        if (error := self.compiled.exception()) is not None:
            return f"{type(error).__name__}: {error}"
        return " ".join(error_of(self.state).split()) if self.state.is_error() else None

    def commit(self, tokens: Ints) -> None:
        """Take committed tokens; never waits."""
        if not self.ready:
            self._committed += tokens.tolist()
        elif not self.failed:
            self.state.try_consume_tokens(tokens.tolist())

    def allowed(self, paths: Paths, tokens: Ints) -> NDArray[np.bool_]:
        """Return which nodes of a tree the grammar allows, bool[nodes]; `tokens` int32[nodes]."""
        keeps = np.zeros(len(tokens), np.bool_)
        if self.failed:
            return keeps
        state = self.state
        for node, (ancestors, depth) in enumerate(zip(paths.ancestors, paths.depth, strict=True)):
            path = tokens[ancestors[:depth]].tolist()
            keeps[node] = state.validate_tokens(path) == len(path)
        return keeps

    def mask(self, logits: NDArray[np.float32], paths: Ints) -> None:
        """Write -inf, in place, for what the grammar forbids after each row's path.

        logits float32[rows, vocabulary]; paths int32[rows, deepest], padded with -1. A row whose
        path breaks the grammar stays as it is: nothing sampled there can be committed. Nor can what
        is sampled once there is a `failure`.
        """
        for row, path in zip(logits, paths, strict=True):
            if self.failed:
                return
            state = self.state
            tokens = path[path >= 0].tolist()
            taken = state.try_consume_tokens(tokens)
            if taken == len(tokens):
                forbid(row, np.frombuffer(state.compute_bitmask(), np.uint8))
            state.rollback(taken)


@dataclass(slots=True)
class Grammars:
    """Compiles the grammars of one model's requests; the tokenizer is built for the first."""

    build: "Callable[[], LLTokenizer]"
    _thread: ThreadPoolExecutor = field(default_factory=partial(started, 1, "grammars", STAND_BACK))
    _building: ThreadPoolExecutor = field(default_factory=partial(started, 1, "grammar tokenizer"))
    """Runs Python, and so does not stand back: the engine waits for the interpreter."""
    _tokenizer: "LLTokenizer | None" = None
    _compiled: "OrderedDict[str, Future[LLMatcher]]" = field(default_factory=OrderedDict)

    def ready(self, source: str) -> bool:
        """True if a grammar, or none, is compiled; begins to compile one that is not."""
        return not source or self.compiled(source).done()

    def start(self, source: str) -> Grammar:
        """Return a grammar at its start."""
        return Grammar(self.compiled(source))

    def compiled(self, source: str) -> "Future[LLMatcher]":
        """Return a grammar that is compiled, or about to be."""
        if source not in self._compiled:
            self._forget(len(self._compiled) + 1 - REMEMBERED)
            self._compiled[source] = self._thread.submit(self._compile, source)
        self._compiled.move_to_end(source)
        return self._compiled[source]

    def _forget(self, count: int) -> None:
        """Forget those asked for longest ago, but none that a request may be waiting for."""
        if count > 0:
            done = [source for source, made in self._compiled.items() if made.done()]
            for source in done[:count]:
                del self._compiled[source]

    def _compile(self, source: str) -> "LLMatcher":
        from llguidance import LLMatcher

        if self._tokenizer is None:
            self._tokenizer = self._building.submit(self.build).result()
        return LLMatcher(self._tokenizer, source, log_level=0)
