"""The names and tables that both sides of Outrider share."""

import grpc
import pytest

from outrider.client.errors import ERRORS, ClientError
from outrider.contract import errors, ports
from outrider.worker.errors import WorkerError, status


def test_every_port_has_its_own_number() -> None:
    assert len({ports.GRPC, ports.HTTP, ports.METRICS}) == 3


@pytest.mark.parametrize("error", WorkerError.__subclasses__())
def test_a_worker_answers_with_the_status_of_the_table(error: type[WorkerError]) -> None:
    values = ("field", 1, "limit") if error.__name__ == "InvalidField" else ("text",)
    expected = errors.ANSWERS.get(error.__name__, errors.INTERNAL).grpc
    assert status(error(*values)).name == expected


@pytest.mark.parametrize("answer", [*errors.ANSWERS.values(), errors.INTERNAL])
def test_every_status_of_the_table_has_an_error_of_the_client(answer: errors.Answer) -> None:
    assert ERRORS[grpc.StatusCode[answer.grpc]] is not ClientError
