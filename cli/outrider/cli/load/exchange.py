"""One job sent, and its answer read to its end, cancellation or failure.

When to send is `drive`'s; what the answer's events mean is `answer`'s.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import httpx

from outrider.cli.load.answer import Broken, StreamedAnswer
from outrider.cli.load.endpoint import refusal, words
from outrider.cli.load.outcome import Outcome, Status
from outrider.cli.load.workload import CHARACTERS_PER_TOKEN, Job

RETRY_AFTER = 1.0
"""Seconds before another try where the endpoint does not say."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Manner:
    """Settings that every request is sent with."""

    model: str
    ignore_eos: bool = False
    """Ask for answers of full length; an extension of vLLM, SGLang and others."""
    chunk_usage: bool = False
    """Ask for usage in every chunk; an extension of vLLM."""
    retries: int = 0
    """How often a rejected request is tried again."""
    timeout: float = 600.0
    """Seconds that a request may take, retries included."""

    def body(self, job: Job) -> dict[str, Any]:
        """Return the request's JSON."""
        stream_options = {"include_usage": True}
        if self.chunk_usage:
            stream_options["continuous_usage_stats"] = True
        return {
            "model": self.model,
            "messages": [{"role": turn.role, "content": turn.content} for turn in job.turns],
            "max_tokens": job.max_tokens,
            "temperature": job.temperature,
            "seed": job.seed,
            "stream": True,
            "stream_options": stream_options,
            **({"ignore_eos": True} if self.ignore_eos else {}),
        }


@dataclass(slots=True, eq=False)
class Exchange:
    """One request, while it runs and after."""

    client: httpx.AsyncClient
    manner: Manner
    job: Job
    due: float
    clock: Callable[[], float]
    """Seconds since the run began."""
    status: Status = Status.INTERRUPTED
    problem: str = ""
    answer: StreamedAnswer = field(default_factory=StreamedAnswer)
    retries: int = 0
    sent: float = 0.0

    async def run(self) -> None:
        """Send and read; what goes wrong becomes the status. Only cancellation is raised."""
        self.sent = self.clock()
        try:
            async with asyncio.timeout(self.manner.timeout):
                await self._tries()
        except TimeoutError:
            self._fail(f"not over after {self.manner.timeout:g} seconds")
        except (httpx.HTTPError, httpx.StreamError) as error:
            self._fail(f"connection: {words(error)}")
        except Broken as error:
            self._fail(str(error))

    def outcome(self) -> Outcome:
        """Return the outcome as of now."""
        return Outcome(
            job=self.job,
            status=self.status,
            due=self.due,
            sent=self.sent,
            ended=self.clock(),
            answer=self.answer,
            retries=self.retries,
            problem=self.problem,
        )

    def _fail(self, problem: str) -> None:
        self.status, self.problem = Status.FAILED, problem

    async def _tries(self) -> None:
        while (wait := await self._try()) is not None and self.retries < self.manner.retries:
            self.retries += 1
            await asyncio.sleep(wait)

    async def _try(self) -> float | None:
        """One try; seconds to wait before the next one if it was rejected, else None."""
        self.status = Status.INTERRUPTED
        body = self.manner.body(self.job)
        async with self.client.stream("POST", "chat/completions", json=body) as response:
            if response.status_code == httpx.codes.TOO_MANY_REQUESTS:
                self.status = Status.REJECTED
                return retry_after(response.headers.get("Retry-After"))
            if response.status_code != httpx.codes.OK:
                await response.aread()
                raise Broken(refusal(response))
            self.status = await self._read(response)
        return None

    async def _read(self, response: httpx.Response) -> Status:
        if self._cancels():
            return Status.CANCELLED
        async for line in response.aiter_lines():
            self.answer.take(line, self.clock())
            if self.answer.done:
                break
            if self._cancels():
                return Status.CANCELLED
        if self.answer.finish_reason is None:
            raise Broken("the stream ended before the answer did")
        return Status.COMPLETED

    def _cancels(self) -> bool:
        """True if the job is to be given up here; finished answers are not."""
        if self.job.cancel_after is None or self.answer.finish_reason is not None:
            return False
        characters = sum(map(len, self.answer.pieces))
        came = max(len(self.answer.chunks), characters / CHARACTERS_PER_TOKEN)
        return came >= self.job.cancel_after


def retry_after(header: str | None) -> float:
    """Return the seconds of a Retry-After; a date, or nothing, counts as `RETRY_AFTER`."""
    try:
        return min(max(0.0, float(header or RETRY_AFTER)), 3600.0)
    except ValueError:
        return RETRY_AFTER
