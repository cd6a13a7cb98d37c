"""The names and tables that both sides of Outrider share."""

import grpc
import pytest
from prometheus_client import Counter, Gauge, generate_latest

from outrider.client.errors import ERRORS, ClientError
from outrider.contract import errors, metrics, ports
from outrider.worker.errors import STATUS, WorkerError

METRICS = {k: v for k, v in vars(metrics).items() if k.isupper()}


def test_every_metric_is_served_under_the_name_that_readers_use() -> None:
    for name in METRICS.values():
        kind = Counter if name.endswith("_total") else Gauge
        metric = kind(name, "documentation", registry=None)
        assert f"\n{name} 0.0".encode() in generate_latest(metric)


def test_every_metric_and_port_has_its_own_name() -> None:
    assert len(set(METRICS.values())) == len(METRICS)
    assert len({ports.GRPC, ports.HTTP, ports.METRICS}) == 3


@pytest.mark.parametrize("error", STATUS)
def test_a_worker_answers_with_the_status_of_the_table(error: type[WorkerError]) -> None:
    assert STATUS[error].name == errors.ANSWERS[error.__name__].grpc


@pytest.mark.parametrize("answer", [*errors.ANSWERS.values(), errors.INTERNAL])
def test_every_status_of_the_table_has_an_error_of_the_client(answer: errors.Answer) -> None:
    assert ERRORS[grpc.StatusCode[answer.grpc]] is not ClientError
