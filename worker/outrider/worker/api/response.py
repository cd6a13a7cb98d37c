"""The messages of one answer, made of what the engine says of its request.

Leaves who may ask to `inference_service`, and tokens as text to `text`.
"""

import asyncio
import dataclasses
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

from outrider.protos.v1 import inference_pb2 as pb
from outrider.worker.api.text import Detokenizer, StopStrings, Text
from outrider.worker.engine.handle import EngineHandle, Event
from outrider.worker.errors import (
    DeadlineExceeded,
    FormFailed,
    RequestFailed,
    Stopping,
    WaitedTooLong,
)
from outrider.worker.messages import Finish, Finished, Submit, Tokens

FINISH = {
    Finish.STOP: pb.FINISH_REASON_STOP,
    Finish.LENGTH: pb.FINISH_REASON_LENGTH,
    Finish.CANCELLED: pb.FINISH_REASON_STOP,  # the end of an answer that nobody reads
}


@dataclass(frozen=True, slots=True)
class Admitted:
    """A request that the engine has; whoever admitted it iterates its responses or releases it."""

    submit: Submit
    events: "asyncio.Queue[Event | None]"
    stops: StopStrings
    deadline: float | None
    """Loop time at which it is given up."""


@dataclass(frozen=True, slots=True)
class Responses:
    """The answers of one engine, in the words of one model."""

    engine: EngineHandle
    text: Text

    async def of(self, admitted: Admitted) -> AsyncIterator[pb.GenerateResponse]:
        """Turns the engine's events into messages until the last one."""
        submit, stops = admitted.submit, admitted.stops
        detokenizer = Detokenizer(self.text)
        stopped = False
        while True:
            match await _next(admitted):
                case Tokens(ids=ids, passes=passes) as tokens:
                    if stopped:
                        continue
                    piece, stopped = stops.push(detokenizer.push(ids))
                    yield pb.GenerateResponse(
                        token_ids=ids, text=piece, passes=passes, logprobs=self._logprobs(tokens)
                    )
                    if stopped:
                        self.engine.cancel(submit.request, Finish.STOP)
                case Finished() as finished:
                    rest = "" if stopped else stops.finish(detokenizer.finish())
                    yield _last(finished, rest, submit.sampling.seed)
                    return
                case None:
                    why = "the engine died" if self.engine.gone.is_set() else "the target stopped"
                    raise Stopping(f"{why} during this request; send it to another target")

    def _logprobs(self, tokens: Tokens) -> list[pb.TokenLogprobs]:
        return [
            pb.TokenLogprobs(
                token=self._likely(token, found.logprob),
                top=[self._likely(*likely) for likely in found.top],
            )
            for token, found in zip(tokens.ids, tokens.likelihoods, strict=False)
        ]

    def _likely(self, token: int, logprob: float) -> pb.Likely:
        return pb.Likely(id=token, logprob=logprob, text=self.text.tokens[token])


async def _next(admitted: Admitted) -> Event | None:
    """The engine's next event for this request; raises `DeadlineExceeded`."""
    try:
        async with asyncio.timeout_at(admitted.deadline):
            return await admitted.events.get()
    except TimeoutError:
        raise DeadlineExceeded("the request was not answered within its time") from None


def _last(finished: Finished, text: str, seed: int) -> pb.GenerateResponse:
    if finished.finish is Finish.FAILED:
        raise RequestFailed(finished.detail)
    if finished.finish is Finish.UNFORMED:
        raise FormFailed(finished.detail)
    if finished.finish is Finish.EXPIRED:
        raise WaitedTooLong(finished.detail)
    return pb.GenerateResponse(
        text=text,
        finish_reason=FINISH[finished.finish],
        usage=pb.Usage(**_fields(finished.usage)),
        timing=pb.Timing(**_fields(finished.timing)),
        seed=seed,
    )


def _fields(value: Any) -> dict[str, Any]:
    return {f.name: getattr(value, f.name) for f in dataclasses.fields(value)}
