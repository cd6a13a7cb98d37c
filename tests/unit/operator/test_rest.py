"""A service at rest: its passes end early, and whatever changes is met by the next one."""

import datetime
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest

from outrider.operator.certificates.authority import Authorities
from outrider.operator.cluster.certificate_secrets import AGAIN_SECONDS, WAITING_SECONDS
from outrider.operator.naming import PROBE_ANNOTATION, certificate_name
from tests.unit.operator.one_service import KEY, START, OneService

DAY = 24 * 3600.0
NOW = datetime.datetime.fromtimestamp(START, datetime.UTC)
Change = Callable[[OneService], object]
Met = Callable[[OneService], object]


def at_rest() -> OneService:
    """A service with certificates that has nothing to do."""
    authorities = Authorities().renewed(NOW)
    service = OneService(authorities=lambda: authorities)
    service.rest()
    assert service.writes_at_rest() == []
    return service


def calls_of_a_pass(service: OneService) -> int:
    """Return the operator's functions that one pass calls."""
    count = 0

    def profile(frame: FrameType, event: str, argument: object) -> None:
        nonlocal count
        count += event == "call" and "outrider/operator" in frame.f_code.co_filename

    sys.setprofile(profile)
    try:
        service.pass_()
    finally:
        sys.setprofile(None)
    return count


def test_a_pass_after_one_that_had_nothing_to_do_costs_a_fifth_at_most() -> None:
    service = at_rest()
    service.now += 16.0
    early = calls_of_a_pass(service)
    service.restart()
    assert 5 * early < calls_of_a_pass(service)


def wrote(write: str) -> Met:
    return lambda service: write in service.cluster.writes


def is_(kind: str, status: str) -> Met:
    return lambda service: service.condition(kind)[0] == status


def removed(kind: str, name: str) -> Change:
    return lambda service: service.cluster.remove((kind, KEY[0], name))


def edited(service: OneService) -> None:
    service.edit(lambda spec: spec["target"].update(image="worker:2"))


def scaled_by_another(service: OneService) -> None:
    def double(body: dict[str, Any]) -> None:
        body["spec"]["replicas"] *= 2

    service.cluster.edit(("Deployment", KEY[0], "chat-draft"), double, "autoscaler")


def unready(service: OneService) -> None:
    service.controllers.ready = lambda role: False
    service.controllers.settle()


def running(service: OneService) -> None:
    for stored in service.cluster.stored.values():
        if stored.body["kind"] == "Pod":
            begun = {"name": "worker", "state": {"running": {}}}
            stored.body["status"]["containerStatuses"] = [begun]


def linkless(service: OneService) -> None:
    service.workers.links_up = 0.0


def silent(service: OneService) -> None:
    service.workers.silent = True


def better(service: OneService) -> None:
    service.workers.gain = 1.9
    service.pass_()  # begins a window
    service.now += 60.0


def begun_anew(service: OneService) -> None:
    service.workers.policies.clear()
    service.workers.pushed.clear()


def asked_to_probe(service: OneService) -> None:
    given = {PROBE_ANNOTATION: "now"}
    key = ("SpeculativeService", *KEY)
    service.cluster.edit(key, lambda body: body["metadata"].update(annotations=given))


def later(seconds: float) -> Change:
    def wait(service: OneService) -> None:
        service.now += seconds

    return wait


def without_certificate(seconds: float) -> Change:
    """Its target's, so many seconds ago: Secrets are not watched."""

    def change(service: OneService) -> None:
        removed("Secret", SECRET.split()[-1])(service)
        service.now += seconds

    return change


SECRET = f"apply Secret {certificate_name(KEY[1], 'target')}"
CHANGES: dict[str, tuple[Change, Met]] = {
    "edited": (edited, wrote("apply Deployment chat-target")),
    "a child deleted": (removed("Service", "chat"), wrote("apply Service chat")),
    "its certificate deleted": (without_certificate(AGAIN_SECONDS), wrote(SECRET)),
    "scaled by another": (scaled_by_another, wrote("apply Deployment chat-draft")),
    "pods not ready": (unready, is_("Ready", "False")),
    "links lost": (linkless, is_("LinkEstablished", "False")),
    "workers silent": (silent, is_("MetricsAvailable", "False")),
    "a gain that differs": (better, wrote("status SpeculativeService chat")),
    "workers that have begun anew": (begun_anew, lambda service: service.workers.pushed),
    "a certificate that is due": (later(21 * DAY), wrote(SECRET)),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_change_is_met_by_the_next_pass(name: str) -> None:
    change, is_met = CHANGES[name]
    service = at_rest()
    service.now += 16.0
    change(service)
    service.pass_()
    assert is_met(service)


@pytest.mark.parametrize(
    ("pods", "seconds"),
    [("wait", WAITING_SECONDS), ("load", AGAIN_SECONDS), ("serve", AGAIN_SECONDS)],
)
def test_a_certificate_that_is_deleted_comes_back_sooner_where_a_pod_may_wait_for_it(
    pods: str, seconds: float
) -> None:
    service = at_rest()
    if pods != "serve":
        unready(service)
        service.rest(2)
    if pods == "load":
        running(service)
    service.now += AGAIN_SECONDS
    service.pass_()
    service.cluster.writes.clear()
    without_certificate(seconds - 1)(service)
    service.pass_()
    assert SECRET not in service.cluster.writes
    service.now += 1
    service.pass_()
    assert SECRET in service.cluster.writes


@pytest.mark.parametrize("change", [later(2400), asked_to_probe], ids=["due", "asked for"])
def test_a_probe_is_met_by_a_service_at_rest(change: Change) -> None:
    service = OneService()
    service.workers.gain = 0.9
    service.rest(40)
    assert service.writes_at_rest() == []
    change(service)
    service.cluster.writes.clear()
    service.rest(3)
    assert "apply Deployment chat-draft" in service.cluster.writes


def test_renewed_authorities_are_given_to_pods_at_once() -> None:
    current = Authorities().renewed(NOW)
    service = OneService(authorities=lambda: current)
    service.rest()
    assert service.writes_at_rest() == []
    current = Authorities((*current.pairs, *Authorities().renewed(NOW).pairs))
    service.pass_()
    assert SECRET in service.cluster.writes
