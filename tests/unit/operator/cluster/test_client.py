"""Requests to the API server: a bound in flight, none without the lease, leadership apart."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
from aiohttp import web
from kubernetes.aio.client import ApiClient, Configuration

from outrider.operator.cluster.client import MAX_AT_ONCE, PAGE, Cluster, ClusterError
from outrider.operator.cluster.kinds import CONFIG_MAP, LEASE, SERVICE
from outrider.operator.server.metrics import OperatorMetrics


class SlowServer:
    """Answers a Lease at once, and ConfigMaps once it is let go."""

    def __init__(self) -> None:
        self.waiting = 0
        self.most = 0
        self.full = asyncio.Event()
        self.go = asyncio.Event()

    async def answer(self, request: web.Request) -> web.Response:
        if "/leases/" not in request.path:
            self.waiting += 1
            self.most = max(self.most, self.waiting)
            if self.waiting == MAX_AT_ONCE:
                self.full.set()
            await self.go.wait()
            self.waiting -= 1
        return web.json_response({"metadata": {"name": request.path.rpartition("/")[2]}})


@contextlib.asynccontextmanager
async def cluster(
    answer: Callable[[web.Request], Awaitable[web.Response]],
) -> AsyncIterator[Cluster]:
    """One that is answered so."""
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", answer)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    host, port = runner.addresses[0]
    api = ApiClient(Configuration(host=f"http://{host}:{port}"))
    async with asyncio.timeout(60), Cluster(api, OperatorMetrics().requests) as found:
        yield found
    await runner.cleanup()


def test_a_bounded_number_of_requests_wait_and_leadership_waits_behind_none() -> None:
    async def scene() -> None:
        server = SlowServer()
        async with cluster(server.answer) as asked:
            names = [f"map-{number}" for number in range(3 * MAX_AT_ONCE)]
            waiting = [asyncio.create_task(asked.get(CONFIG_MAP, "n", name)) for name in names]
            await server.full.wait()
            lease = await asked.get(LEASE, "n", "leader")
            assert lease == {"metadata": {"name": "leader"}}
            assert server.waiting == MAX_AT_ONCE
            server.go.set()
            found = await asyncio.gather(*waiting)
        assert [one and one["metadata"]["name"] for one in found] == names
        assert server.most == MAX_AT_ONCE

    asyncio.run(scene())


def test_a_name_leads_to_no_other_path() -> None:
    asked: list[str] = []

    async def answer(request: web.Request) -> web.Response:
        asked.append(request.raw_path)
        return web.json_response({})

    async def scene() -> None:
        async with cluster(answer) as api:
            for name in ("a/status", "../../x", "x?y", "x#y", "a%2Fb"):
                await api.get(CONFIG_MAP, "n", name)

    asyncio.run(scene())
    names = ("a%2Fstatus", "..%2F..%2Fx", "x%3Fy", "x%23y", "a%252Fb")
    assert asked == [f"/api/v1/namespaces/n/configmaps/{name}" for name in names]


def test_lists_are_read_page_by_page() -> None:
    asked: list[dict[str, str]] = []

    async def page(request: web.Request) -> web.Response:
        asked.append(dict(request.query))
        at = int(request.query.get("continue", "0"))
        meta = {"continue": str(at + 1)} if at < 2 else {}
        return web.json_response({"metadata": meta, "items": [{"metadata": {"name": str(at)}}]})

    async def scene() -> None:
        async with cluster(page) as found:
            items = await found.items(CONFIG_MAP, "n", "a=b")
        assert [one["metadata"]["name"] for one in items] == ["0", "1", "2"]
        assert {one["kind"] for one in items} == {CONFIG_MAP.name}

    asyncio.run(scene())
    assert [one.get("continue") for one in asked] == [None, "1", "2"]
    assert all(one["limit"] == str(PAGE) and one["labelSelector"] == "a=b" for one in asked)


async def echoed(request: web.Request) -> web.Response:
    return web.json_response({"asked": request.path})


def test_whoever_holds_no_lease_writes_nothing_but_leases_whatever_the_names() -> None:
    meta = {"name": "leases-target", "namespace": "leases"}
    service = {"apiVersion": SERVICE.api_version, "kind": SERVICE.name}
    bare = {"apiVersion": "v1", "kind": CONFIG_MAP.name, "metadata": meta}

    async def scene() -> None:
        async with cluster(echoed) as asked:
            asked.may_write = lambda: False
            writes: list[Awaitable[object]] = [
                asked.apply(bare),
                asked.apply_status({**service, "metadata": {**meta, "name": "leases"}}),
                asked.create(bare),
                asked.delete(CONFIG_MAP, "leases", "leases", "uid"),
                asked.event({**service, "metadata": {**meta, "uid": "u"}}, **HAPPENED),
            ]
            for write in writes:
                with pytest.raises(ClusterError, match="lease is not held"):
                    await write
            assert await asked.get(CONFIG_MAP, "leases", "leases") is not None
            lease = {"apiVersion": LEASE.api_version, "kind": LEASE.name, "metadata": meta}
            assert await asked.replace(lease)

    asyncio.run(scene())


def test_a_lease_that_ends_while_the_connection_is_made_stops_the_write() -> None:
    meta = {"name": "late", "namespace": "n"}
    bare = {"apiVersion": "v1", "kind": CONFIG_MAP.name, "metadata": meta}
    heard: list[str] = []

    async def hear(request: web.Request) -> web.Response:
        heard.append(request.method)
        return await echoed(request)

    async def scene() -> None:
        async with cluster(hear) as asked:
            api, held = asked._api, [True]
            asked.may_write = lambda: held[0]

            async def ends(*_: object) -> None:
                held[0] = False

            (trace,) = api.configuration.trace_configs
            trace.on_connection_create_end.append(ends)
            with pytest.raises(ClusterError, match="lease is not held"):
                await asked.create(bare)
        assert not heard

    asyncio.run(scene())


HAPPENED: Any = {"warning": False, "reason": "Scaled", "note": "2 to 1"}


@pytest.mark.parametrize(
    ("header", "seconds"), [("7", 7.0), ("900", 60.0), ("soon", 0.0), (None, 0.0)]
)
def test_a_server_that_asks_for_patience_is_heard(header: str | None, seconds: float) -> None:
    async def busy(request: web.Request) -> web.Response:
        headers = {} if header is None else {"Retry-After": header}
        return web.json_response({"message": "too many"}, status=429, headers=headers)

    async def scene() -> None:
        async with cluster(busy) as asked:
            with pytest.raises(ClusterError, match="too many") as refusal:
                await asked.get(CONFIG_MAP, "n", "a")
            assert refusal.value.transient
            assert refusal.value.retry_after == seconds

    asyncio.run(scene())


def test_a_field_of_the_wrong_type_is_no_failure_of_the_server() -> None:
    words = "failed to create typed patch object (n/a; apps/v1, Kind=Deployment): .spec.x: unknown"
    assert not ClusterError("patch", 500, words).transient
    assert ClusterError("patch", 500, "failed calling webhook").transient


def test_a_dry_run_is_strict_and_a_webhook_that_knows_none_is_no_objection() -> None:
    asked: list[dict[str, str]] = []
    answers = [
        web.json_response({}),
        web.json_response({"message": 'webhook "w" does not support dry run'}, status=400),
        web.json_response({"message": "unknown field"}, status=400),
    ]

    async def answer(request: web.Request) -> web.Response:
        asked.append(dict(request.query))
        return answers[len(asked) - 1]

    async def scene() -> None:
        meta = {"name": "a", "namespace": "n"}
        wanted = {"apiVersion": "v1", "kind": CONFIG_MAP.name, "metadata": meta}
        async with cluster(answer) as api:
            await api.dry_run(wanted)
            await api.dry_run(wanted)
            with pytest.raises(ClusterError, match="unknown field"):
                await api.dry_run(wanted)

    asyncio.run(scene())
    assert {(one["dryRun"], one["fieldValidation"]) for one in asked} == {("All", "Strict")}


def test_warnings_of_a_status_are_read_and_nothing_is_stored() -> None:
    asked: list[tuple[str, str]] = []

    async def answer(request: web.Request) -> web.Response:
        asked.append((request.path, request.query["dryRun"]))
        said = ('299 - "no \\"host\\", no \\\\"', '299 api "other"')
        return web.json_response({}, headers=[("Warning", one) for one in said])

    async def scene() -> list[str]:
        meta = {"name": "chat", "namespace": "n"}
        wanted = {"apiVersion": SERVICE.api_version, "kind": SERVICE.name, "metadata": meta}
        async with cluster(answer) as api:
            return await api.warnings({**wanted, "status": {}})

    assert asyncio.run(scene()) == ['no "host", no \\', "other"]
    assert asked == [(f"{SERVICE.at('n', 'chat')}/status", "All")]
