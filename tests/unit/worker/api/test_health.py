"""`/health` and `/version` of workers, beside `/healthz` and `/readyz`."""

import asyncio
from dataclasses import dataclass, field
from importlib.metadata import version

import httpx
import pytest
from grpc_health.v1 import health_pb2
from starlette.applications import Starlette

from outrider.contract.process import LIVENESS
from outrider.worker.api.availability import Availability
from outrider.worker.api.http.app import draft_application
from outrider.worker.api.http.health import waiting_of
from outrider.worker.server.readiness import HealthService

SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING


def answers(application: Starlette, path: str) -> httpx.Response:
    async def get() -> httpx.Response:
        transport = httpx.ASGITransport(application)
        async with httpx.AsyncClient(transport=transport, base_url="http://worker") as client:
            return await client.get(path)

    return asyncio.run(get())


def test_health_is_ok_while_requests_should_come() -> None:
    ready = draft_application(lambda: True, ())
    assert answers(ready, "/health").json() == {"status": "ok"}
    assert answers(ready, "/readyz").text == "ready\n"


def test_health_says_why_requests_should_not_come() -> None:
    loading = draft_application(lambda: False, ())
    found = answers(loading, "/health")
    assert found.status_code == 503
    assert found.json()["status"] == "unavailable"
    assert found.json()["reason"]
    assert answers(loading, "/readyz").status_code == 503
    assert answers(loading, "/healthz").text == "alive\n"


def test_a_worker_that_hangs_is_not_ready_and_says_why_everywhere() -> None:
    hung = draft_application(lambda: True, (), lambda: "it hangs")
    for path, text in (("/healthz", "it hangs\n"), ("/readyz", "not ready: it hangs\n")):
        assert (answers(hung, path).status_code, answers(hung, path).text) == (503, text)
    assert answers(hung, "/health").json()["reason"] == "it hangs"


def test_grpc_health_says_apart_whether_a_worker_lives() -> None:
    async def statuses(service: HealthService) -> list[int]:
        names = (LIVENESS, "")
        asked = [health_pb2.HealthCheckRequest(service=name) for name in names]
        return [(await service.Check(one, None)).status for one in asked]

    async def main() -> None:
        service, trouble = HealthService(), [""]
        service.trouble = lambda: trouble[0]
        await service.set_serving(False)
        assert await statuses(service) == [SERVING, NOT_SERVING]
        trouble[0] = "it hangs"
        await service.set_serving(True)
        assert await statuses(service) == [NOT_SERVING, SERVING]

    asyncio.run(main())


def test_the_version_is_the_package_s() -> None:
    found = answers(draft_application(lambda: False, ()), "/version")
    assert (found.status_code, found.json()) == (200, {"version": version("outrider")})


@dataclass
class Target:
    """As much of `Inference` as its readiness takes."""

    ready: bool
    availability: Availability = field(default_factory=Availability)


@pytest.mark.parametrize(
    ("ready", "linking", "draining", "why"),
    [
        (True, False, False, ""),
        (False, False, False, "the model is being loaded"),
        (True, True, False, "it waits for its first draft"),
        (False, False, True, "draining"),
    ],
)
def test_a_target_says_why_it_is_not_ready(
    ready: bool, linking: bool, draining: bool, why: str
) -> None:
    target = Target(ready, Availability(linking))
    if draining:
        target.availability.drain()
    assert waiting_of(target) == why  # type: ignore[arg-type]
