"""The names and tables that both sides of Outrider share."""

import grpc
import pytest

from outrider.client.errors import ERRORS, ClientError
from outrider.contract import errors
from outrider.worker.errors import QueueFull, WorkerError, status, trailers

VALUES = {
    "InvalidField": ("field", 1, "limit"),
    "QueueFull": ("text", 1),
    "PolicySuperseded": (1, 2),
}
"""What those errors are made of that take more than a message."""


@pytest.mark.parametrize("error", WorkerError.__subclasses__())
def test_a_worker_answers_with_the_status_of_the_table(error: type[WorkerError]) -> None:
    expected = errors.ANSWERS.get(error.__name__, errors.INTERNAL).grpc
    assert status(error(*VALUES.get(error.__name__, ("text",)))).name == expected


def test_a_full_queue_says_when_to_come_back_and_nothing_else_does() -> None:
    assert trailers(QueueFull("full", 7)) == ((errors.RETRY_AFTER, "7"),)
    assert trailers(WorkerError("wrong")) == ()


@pytest.mark.parametrize("answer", [*errors.ANSWERS.values(), errors.INTERNAL])
def test_every_status_of_the_table_has_an_error_of_the_client(answer: errors.ErrorAnswer) -> None:
    assert ERRORS[grpc.StatusCode[answer.grpc]] is not ClientError
