"""The operator as a process: it leads, is found healthy, ends when told to, and comes back."""

import pytest

from tests.kube.operator_process import NO_ANSWER, REQUESTS, OperatorProcess, Operators


@pytest.fixture
def operator(operators: Operators) -> OperatorProcess:
    """One that leads, and is the command of a pod in all its lives."""
    started = operators.start(forked=False)
    started.wait_until_leading()
    return started


def test_an_operator_leads_is_healthy_and_ends_when_told_to(operator: OperatorProcess) -> None:
    assert operator.get("/healthz") == "ok"
    assert operator.value(REQUESTS, verb="patch") == 0  # there is nothing to make
    assert operator.stop() == 0
    operator.restart()
    assert operator.leads


def test_a_killed_operator_leads_again(operator: OperatorProcess) -> None:
    operator.kill()
    assert not operator.alive
    operator.restart()
    assert (operator.lives, operator.leads) == (2, True)


def test_of_two_operators_one_leads_and_the_other_follows_after_its_end(
    operator: OperatorProcess, operators: Operators
) -> None:
    other = operators.start()
    operators.control_plane.wait_until(lambda: _answers(other) == "following", "it follows")
    assert operator.stop() == 0
    other.wait_until_leading()


def _answers(operator: OperatorProcess) -> str:
    operator.check()
    try:
        return operator.get("/readyz")
    except NO_ANSWER:
        return ""
