"""A worker on its way to being ready: what ends it, and what it outlives."""

import asyncio
import contextlib
from types import SimpleNamespace
from typing import Any

import pytest

from outrider.worker.server import worker as worker_module
from outrider.worker.server.worker import Worker


def test_stages_count_as_up_while_their_target_still_waits_for_its_drafts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One that ends then only starts again."""

    async def become_ready() -> tuple[list[bool], list[bool]]:
        ready: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        waits = asyncio.Event()

        async def wait_for_ever(links: Any, seconds: float) -> None:
            waits.set()
            await asyncio.Event().wait()

        monkeypatch.setattr(worker_module, "wait_for_first_link", wait_for_ever)
        linking = SimpleNamespace(linking=True)
        followed: list[bool] = []
        stages = SimpleNamespace(follow=lambda up: followed.append(up))
        parts: dict[str, Any] = {
            "settings": SimpleNamespace(link_seconds=60.0),
            "engine": SimpleNamespace(ready=ready),
            "control": SimpleNamespace(send_drafts=lambda: None, availability=linking),
            "stages": stages,
        }
        others = ("servers", "http", "health", "inference", "traces")
        becoming = asyncio.create_task(Worker(**dict.fromkeys(others), **parts).become_ready())
        await asyncio.sleep(0)
        before = [*followed]
        ready.set_result(None)
        await waits.wait()
        becoming.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await becoming
        return before, followed

    assert asyncio.run(become_ready()) == ([], [True])
