"""Advice on what is probably not meant; the full read that finds what watches missed."""

import asyncio
import logging
from typing import Any

import pytest

from outrider.operator import advice, resync
from outrider.operator.kinds import Kind
from outrider.operator.spec import load
from outrider.operator.wakes import Wakes
from outrider.operator.world import Key

HEAD = "apiVersion: outrider.dev/v1alpha1\nkind: SpeculativeService\nmetadata: {name: chat}\n"
CALM = "resources: {requests: {memory: 1Gi}}"


def given(target: str) -> list[str]:
    text = f"{HEAD}spec: {{target: {{model: {{uri: 'hf://o/large'}}, {target}}}}}"
    return list(advice.on(load(text)))


@pytest.mark.parametrize(
    ("target", "words"),
    [
        (CALM, []),
        ("replicas: 1", ["spec.target.resources: no memory is asked for"]),
        (f"{CALM}, parallelism: {{tensor: 2}}", ["parallelism: 2 processes a replica"]),
        (
            "resources: {limits: {memory: 1Gi, nvidia.com/gpu: 2}}",
            ["resources.limits: 2 of nvidia.com/gpu for 1 ranks a pod"],
        ),
        (
            f"{CALM}, podTemplate: {{metadata: {{labels: {{outrider.dev/role: x, mine: y}}}}}}",
            ["podTemplate.metadata.labels: outrider.dev/role is the operator's"],
        ),
        (
            f"{CALM}, podTemplate: {{spec: {{containers: [{{name: main, args: [a]}}, other]}}}}",
            ["podTemplate: args of the container main"],
        ),
        (f"{CALM}, podTemplate: {{spec: {{x: {'y' * (33 << 10)}}}}}", ["more than 32768"]),
    ],
)
def test_advice_names_the_field(target: str, words: list[str]) -> None:
    found = given(target)
    assert len(found) == len(words)
    for part, sentence in zip(words, found, strict=True):
        assert part in sentence
        assert sentence.startswith("spec.target.")


def body(name: str, uid: str) -> dict[str, Any]:
    return {"metadata": {"namespace": "n", "name": name, "uid": uid, "resourceVersion": "1"}}


class Listed:
    """A cluster that lists two services, of which the watches know one."""

    async def items(
        self, kind: Kind, namespace: str | None, selector: str | None
    ) -> list[dict[str, Any]]:
        known = kind.name == "SpeculativeService"
        return [body("known", "1"), body("missed", "2")] if known else []

    def versions(self, kind: Kind) -> dict[str, str]:
        return {"1": "1"}


def test_what_a_watch_missed_is_said_and_woken(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(resync, "SECONDS", 0.0)
    monkeypatch.setattr(resync, "GRACE", 0.0)
    woken = asyncio.Queue[Key]()

    async def pass_(key: Key) -> float | None:
        await woken.put(key)
        return None

    async def main() -> Key:
        wakes = Wakes(pass_)
        listed: Any = Listed()
        task = asyncio.create_task(resync.resync(listed, listed, wakes, [None]))
        async with asyncio.timeout(20):
            key = await woken.get()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await wakes.close()
        return key

    with caplog.at_level(logging.WARNING):
        assert asyncio.run(main()) == ("n", "missed")
    assert "no watch told of SpeculativeService missed" in caplog.text
