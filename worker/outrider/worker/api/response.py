"""Responses to one request, made of its engine's events.

Leaves admission to `inference`, and tokens as text to `text`.
"""

import asyncio
import ctypes
import math
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, replace

from outrider.contract.inference import Likely, Timing, TokenLogprobs, Usage
from outrider.worker.api.answer_text import AnswerText
from outrider.worker.api.scored_prompt import without_prompt
from outrider.worker.api.text import Text
from outrider.worker.engine.handle import EngineHandle
from outrider.worker.engine.open_answer import Event
from outrider.worker.errors import (
    DeadlineExceeded,
    GrammarFailed,
    RequestFailed,
    StagesMissing,
    Stopping,
    WaitedTooLong,
    WorkerError,
)
from outrider.worker.messages import Finish, Finished, Submit, Tokens

FAILURES: Mapping[Finish, Callable[[str], WorkerError]] = {
    Finish.FAILED: RequestFailed,
    Finish.GRAMMAR_FAILED: GrammarFailed,
    Finish.EXPIRED: WaitedTooLong,
    Finish.STAGES_MISSING: StagesMissing,
}
"""Errors of answers that end in another way than by `STOP` or `LENGTH`."""


@dataclass(frozen=True, slots=True)
class ShownTree:
    """The tree that a pass verified; fields as of `PassTree`, with text in place of tokens."""

    texts: tuple[str, ...]
    parents: tuple[int, ...]
    accepted: tuple[int, ...]
    following: str


@dataclass(frozen=True, slots=True)
class AnswerEnd:
    """The end of an answer: its finish reason and its cost."""

    finish: Finish
    """`STOP` or `LENGTH`."""
    usage: Usage
    timing: Timing
    seed: int
    """The seed in force."""
    word: str | None = None
    """The stop string that ended it; empty: a limit on its lines did; None: neither."""
    warnings: tuple[str, ...] = ()
    """Parts of its response format that are not forced."""


@dataclass(frozen=True, slots=True)
class GenerateResponse:
    """Part of an answer; each has tokens or the end."""

    text: str
    token_ids: tuple[int, ...] = ()
    passes: int = 0
    """Target passes that brought the tokens."""
    logprobs: tuple[TokenLogprobs, ...] = ()
    """Log-probabilities of each token, if the request asks for them."""
    end: AnswerEnd | None = None
    """End of the answer, in the last response only."""
    tree: ShownTree | None = None
    """What one of the passes verified, if the request asks for it."""


@dataclass(frozen=True, slots=True)
class Admitted:
    """A request that the engine has; its caller iterates the responses or releases it."""

    submit: Submit
    events: "asyncio.Queue[Event | None]"
    answer: AnswerText
    deadline: float | None
    """Loop time at which it is given up."""
    warnings: tuple[str, ...] = ()
    """Parts of its response format that are not forced."""
    echo: bool = False
    """Whether the responses begin with the prompt."""


@dataclass(frozen=True, slots=True)
class Responses:
    """Makes the responses of one engine's events, with the tokenizer of its model."""

    engine: EngineHandle
    text: Text

    async def of(self, admitted: Admitted) -> AsyncIterator[GenerateResponse]:
        """Yield the responses to a request, up to the one with the end.

        Raises `RequestFailed`, `GrammarFailed`, `WaitedTooLong`, `DeadlineExceeded`, `Stopping` or
        `StagesMissing`.
        """
        answer, unscored = admitted.answer, self._unscored(admitted)
        strips = admitted.echo and answer.detokenizer.strips_space
        while True:
            match await self._next_event(admitted):
                case Tokens(ids=ids) as tokens:
                    piece, shown = answer.pieces.popleft(), self._tree(tokens)
                    logprobs, unscored = (*unscored, *self._logprobs(tokens)), ()
                    if strips and any(one.token.text for one in logprobs):
                        logprobs, strips = _stripped(logprobs), False
                    yield GenerateResponse(piece, ids, tokens.passes, logprobs, tree=shown)
                case Finished() as finished:
                    end = replace(_answer_end(finished, admitted), word=answer.stops.word)
                    yield GenerateResponse(answer.finish(), end=end)
                    return
                case None:
                    why = "the engine died" if self.engine.gone.is_set() else "the target stopped"
                    raise Stopping(f"{why} during this request; send it to another target")

    async def _next_event(self, admitted: Admitted) -> Event | None:
        """Wait for the engine's next event of this request.

        Raises `DeadlineExceeded`, or `StagesMissing` if it was late for that.
        """
        try:
            async with asyncio.timeout_at(admitted.deadline):
                return await admitted.events.get()
        except TimeoutError:
            stages = self.engine.stages
            if stages is not None and not stages.up:
                raise StagesMissing(stages.detail) from None
            raise DeadlineExceeded("the request was not answered within its time") from None

    def _unscored(self, admitted: Admitted) -> tuple[TokenLogprobs, ...]:
        """Return the tokens that stand before all that have log-probabilities: one is NaN."""
        if not admitted.echo or admitted.submit.logprobs is None:
            return ()
        tokens = admitted.submit.prompt.tolist()
        return tuple(TokenLogprobs(self._likely(token, math.nan), ()) for token in tokens)

    def _logprobs(self, tokens: Tokens) -> tuple[TokenLogprobs, ...]:
        return tuple(
            TokenLogprobs(
                self._likely(token, found.logprob), tuple(self._likely(*top) for top in found.top)
            )
            for token, found in zip(tokens.ids, tokens.logprobs, strict=False)
        )

    def _tree(self, tokens: Tokens) -> ShownTree | None:
        if (tree := tokens.tree) is None:
            return None
        texts = tuple(map(self._text_of, tree.tokens))
        return ShownTree(texts, tree.parents, tree.accepted, self._text_of(tree.following))

    def _text_of(self, token: int) -> str:
        """Return one token's text; a part of a character has a mark in its place."""
        return self.text.bytes_of(token).decode(errors="replace")

    def _likely(self, token: int, logprob: float) -> Likely:
        return Likely(token, float32(logprob), self.text.bytes_of(token))


def _stripped(tokens: tuple[TokenLogprobs, ...]) -> tuple[TokenLogprobs, ...]:
    """Return tokens of which the first with text has lost the space that the text has lost."""
    at = next(at for at, one in enumerate(tokens) if one.token.text)
    likely = replace(tokens[at].token, text=tokens[at].token.text.removeprefix(b" "))
    return (*tokens[:at], replace(tokens[at], token=likely), *tokens[at + 1 :])


def _answer_end(finished: Finished, admitted: Admitted) -> AnswerEnd:
    if (failure := FAILURES.get(finished.finish)) is not None:
        raise failure(finished.detail)
    # no client reads the end of a cancelled answer
    finish = Finish.STOP if finished.finish is Finish.CANCELLED else finished.finish
    seed, warnings = admitted.submit.sampling.seed, admitted.warnings
    usage = without_prompt(finished.usage, admitted.submit)
    return AnswerEnd(finish, usage, finished.timing, seed, warnings=warnings)


def float32(value: float) -> float:
    """Round to the nearest float32, which is what the gRPC API carries; HTTP gives the same."""
    return ctypes.c_float(value).value
