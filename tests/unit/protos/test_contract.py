"""The names and tables that both sides of Outrider share."""

import grpc
import pytest
from prometheus_client import Counter, Gauge, generate_latest

from outrider.client.errors import ERRORS, ClientError
from outrider.contract import errors, metrics, ports
from outrider.worker.errors import WorkerError, status

METRICS = {k: v for k, v in vars(metrics).items() if k.isupper()}


def test_every_metric_is_served_under_the_name_that_readers_use() -> None:
    for name in METRICS.values():
        kind = Counter if name.endswith("_total") else Gauge
        metric = kind(name, "documentation", registry=None)
        assert f"\n{name} 0.0".encode() in generate_latest(metric)


def test_every_metric_and_port_has_its_own_name() -> None:
    assert len(set(METRICS.values())) == len(METRICS)
    assert len({ports.GRPC, ports.HTTP, ports.METRICS}) == 3


@pytest.mark.parametrize("error", WorkerError.__subclasses__())
def test_a_worker_answers_with_the_status_of_the_table(error: type[WorkerError]) -> None:
    values = ("field", 1, "limit") if error.__name__ == "InvalidField" else ("text",)
    expected = errors.ANSWERS.get(error.__name__, errors.INTERNAL).grpc
    assert status(error(*values)).name == expected


@pytest.mark.parametrize("answer", [*errors.ANSWERS.values(), errors.INTERNAL])
def test_every_status_of_the_table_has_an_error_of_the_client(answer: errors.Answer) -> None:
    assert ERRORS[grpc.StatusCode[answer.grpc]] is not ClientError
