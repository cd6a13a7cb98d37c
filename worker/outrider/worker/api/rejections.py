"""Counts what a target's servers refuse, by the error that said no.

Leaves codes of answers to `answers`: one request may be refused once, and tried again elsewhere.
"""

import functools
import re
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

from outrider.worker.errors import WorkerError

Given = ParamSpec("Given")
Result = TypeVar("Result")


class Refusing(Protocol):
    """Who keeps the count."""

    refused: "Counter[str]"


Self = TypeVar("Self", bound=Refusing)


def counted(
    method: Callable[Concatenate[Self, Given], Awaitable[Result]],
) -> Callable[Concatenate[Self, Given], Coroutine[Any, Any, Result]]:
    """A method whose `WorkerError` counts as a refusal."""

    @functools.wraps(method)
    async def call(self: Self, /, *given: Given.args, **named: Given.kwargs) -> Result:
        try:
            return await method(self, *given, **named)
        except WorkerError as error:
            self.refused[reason(error)] += 1
            raise

    return call


def reason(error: WorkerError) -> str:
    """The error's class as a label: `queue_full`."""
    return re.sub(r"(?<!^)(?=[A-Z])", "_", type(error).__name__).lower()
