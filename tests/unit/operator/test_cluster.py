"""What the API server is asked at once: a bounded number of requests, and leadership besides."""

import asyncio

from aiohttp import web
from kubernetes.aio.client import ApiClient, Configuration

from outrider.operator.cluster import MOST_AT_ONCE, Cluster
from outrider.operator.kinds import CONFIG_MAP, LEASE
from outrider.operator.measured import Measured


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
            if self.waiting == MOST_AT_ONCE:
                self.full.set()
            await self.go.wait()
            self.waiting -= 1
        return web.json_response({"metadata": {"name": request.path.rpartition("/")[2]}})


def test_a_bounded_number_of_requests_wait_and_leadership_waits_behind_none() -> None:
    async def scene() -> None:
        server = SlowServer()
        app = web.Application()
        app.router.add_get("/{path:.*}", server.answer)
        runner = web.AppRunner(app, access_log=None)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        host, port = runner.addresses[0]
        api = ApiClient(Configuration(host=f"http://{host}:{port}"))
        async with asyncio.timeout(60), Cluster(api, Measured().requests) as cluster:
            names = [f"map-{number}" for number in range(3 * MOST_AT_ONCE)]
            asked = [asyncio.create_task(cluster.get(CONFIG_MAP, "n", name)) for name in names]
            await server.full.wait()
            lease = await cluster.get(LEASE, "n", "leader")
            assert lease == {"metadata": {"name": "leader"}}
            assert server.waiting == MOST_AT_ONCE
            server.go.set()
            found = await asyncio.gather(*asked)
        assert [one and one["metadata"]["name"] for one in found] == names
        assert server.most == MOST_AT_ONCE
        await runner.cleanup()

    asyncio.run(scene())
