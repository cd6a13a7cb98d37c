"""Stages of a pipelined target as real processes, and a leader in the test's own process.

with started_stages(folder, scratch, count=2) as stages:
    with leading(stages) as pipeline:
        pipeline.answer(requests, truth)
"""

import asyncio
import contextlib
import functools
import os
import random
import secrets
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from outrider.client import Client
from outrider.contract.settings import PipelineSettings, Role, StageDtype, StageLink, WorkerSettings
from outrider.contract.stages import StagePlace
from outrider.worker.errors import StageLost
from outrider.worker.kv.block_pool import BlockPool
from outrider.worker.messages import Submit
from outrider.worker.pipeline.leader import Leader, LeaderLimits
from outrider.worker.pipeline.segment_size import SegmentPlan
from outrider.worker.pipeline.wire.hello import Group
from outrider.worker.pipeline.wire.stage_client import StageClient
from outrider.worker.tree.mirror import Mirror
from tests.ports import free_port
from tests.process.workers import START_SECONDS, Worker, settings_for, wait_until
from tests.unit.worker.pipeline.path_draft import PathDraft

SILENCE_MILLIS = 60_000
"""For tests in which no stage is to be given up: machines may be busy."""
SECONDS = 120.0
GRANTED = 48
VOCABULARY = 512
ALLOWED = np.ones(VOCABULARY, np.bool_)
Texts = dict[int, list[int]]


@dataclass
class StageWorker(Worker):
    """One stage's process."""

    place: StagePlace = field(default_factory=lambda: StagePlace(0, ()))

    @classmethod
    def start(
        cls,
        settings: WorkerSettings,
        place: StagePlace,
        scratch: Path,
        variables: Mapping[str, str] = MappingProxyType({}),
    ) -> "StageWorker":
        """Starts a stage without waiting for it; `variables` are added to its environment."""
        name = f"stage-{place.index}-{time.monotonic_ns()}"
        file, log = scratch / f"{name}.json", scratch / f"{name}.log"
        file.write_text(settings.to_json())
        with log.open("wb") as stderr:
            process = subprocess.Popen(
                [sys.executable, "-P", "-m", "outrider.worker", "stage", "--settings", str(file)],
                stdin=subprocess.DEVNULL,
                stdout=stderr,
                stderr=stderr,
                env={**os.environ, "OMP_NUM_THREADS": "1", **place.variables(), **variables},
            )
        return cls(settings, process, Client(settings.listen), log, place=place)

    def restart(self, scratch: Path) -> "StageWorker":
        """The same stage in a new process, once the old one is gone."""
        self.client.close()
        return StageWorker.start(self.settings, self.place, scratch)

    def signal(self, number: int) -> None:
        os.kill(self.process.pid, number)


def stage_settings(
    folder: Path, cache: Path, count: int, tensor: int = 1, **pipeline: Any
) -> WorkerSettings:
    """Settings of each of `count` stages; `pipeline`: further fields of `PipelineSettings`."""
    return settings_for(
        Role.TARGET,
        folder,
        cache,
        pipeline=PipelineSettings(stages=count, **pipeline),
        max_running=3,
        tensor_parallel=tensor,
    )


@contextlib.contextmanager
def started_stages(
    folder: Path, scratch: Path, count: int, tensor: int = 1, **pipeline: Any
) -> Iterator[list[StageWorker]]:
    """Stages that are ready, of `tensor` ranks each, in their order; the list may be changed."""
    addresses = tuple(f"127.0.0.1:{free_port()}" for _ in range(count))
    stages = [
        StageWorker.start(
            stage_settings(folder, scratch / "cache", count, tensor, **pipeline),
            StagePlace(i, addresses),
            scratch,
        )
        for i in range(count)
    ]
    try:
        for stage in stages:
            stage.until(lambda state: state.ready)
        yield stages
    finally:
        for stage in stages:
            end(stage)


def end(stage: StageWorker) -> None:
    stage.client.close()
    if stage.process.poll() is None:
        stage.signal(signal.SIGCONT)
        stage.process.terminate()
        try:
            stage.process.wait(30)
        except subprocess.TimeoutExpired:
            stage.process.kill()
            stage.process.wait()
            raise


@functools.cache
def shared_loop() -> asyncio.AbstractEventLoop:
    """A loop on a thread that ends with the process."""
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, daemon=True).start()
    return loop


class Pipeline:
    """The leader's state machine over its links to real stages."""

    def __init__(self, stages: list[StageWorker], silence: int, dtype: StageDtype) -> None:
        self._stages = stages
        self._silence = silence
        self._dtype = dtype
        self.client = self._connect()
        plan = SegmentPlan(rows=4, in_flight=len(stages) + 1, prompt_rows=16)
        self.leader = Leader(self._pool(), plan, LeaderLimits(max_running=3))
        self.texts: Texts = {}
        self.fall_ins = 0
        self._drafts: dict[int, tuple[Mirror, PathDraft]] = {}
        self._truth: dict[int, tuple[int, ...]] = {}
        self._random = random.Random(0)

    def submit(self, requests: Mapping[int, Submit], truth: Mapping[int, tuple[int, ...]]) -> None:
        """Takes requests; `truth`: prompt and answer of each, which their drafts often guess."""
        for number, request in requests.items():
            mirror = self.leader.submit(request).mirror
            mirror.attach()
            draft = PathDraft(tuple(request.prompt.tolist()))
            self._drafts[number], self._truth[number] = (mirror, draft), truth[number]
            self.texts[number] = []

    def run(self, until: int | None = None) -> None:
        """Runs until all requests are finished, or `until` tokens are committed.

        Raises `StageLost`.
        """
        while (self.leader.running or self.leader.waiting) and not self._enough(until):
            while self.leader.fill():
                pass
            while self.leader.outgoing:
                self.client.send(self.leader.outgoing.popleft())
            results = self.client.receive(SECONDS)
            assert results, f"no result within {SECONDS} s"
            for result in results:
                for record in self.leader.receive(result):
                    number = record.sequence.submit.request
                    self.texts[number] += record.tokens.tolist()
                    self.fall_ins += record.survived
                    if record.finish is None:
                        self._grow(number)

    def recover(self) -> None:
        """Begins a new group once all stages are back; requests go on from their tokens."""
        self.client.close()
        until = time.monotonic() + START_SECONDS
        while True:
            try:
                self.client = self._connect()
                break
            except StageLost:
                assert time.monotonic() < until
                time.sleep(0.05)
        self.leader.restart(self._pool())

    def _grow(self, request: int) -> None:
        """A draft grows a few nodes behind what is committed, right and wrong ones."""
        mirror, draft = self._drafts[request]
        truth = self._truth[request]
        draft.hear((*truth[:-ANSWER], *self.texts[request]))

        def guess(path: tuple[int, ...]) -> int:
            right = truth[len(path)] if len(path) < len(truth) else 0
            return right if self._random.random() < 0.8 else self._random.randrange(256)

        draft.grow(self._random.randrange, guess, most=6)
        growth = draft.sent.popleft()
        if len(growth.tokens) and mirror.attached:
            mirror.receive(growth, GRANTED, ALLOWED)

    def _enough(self, until: int | None) -> bool:
        return until is not None and sum(map(len, self.texts.values())) >= until

    def _connect(self) -> StageClient:
        revision = self._stages[0].client.state(timeout=30).revision
        distributed = self._stages[0].settings.pipeline.link is StageLink.DISTRIBUTED
        group = Group(
            secrets.randbits(64),
            revision,
            len(self._stages),
            self._dtype,
            self._silence,
            distributed,
        )
        client = StageClient(group, shared_loop(), VOCABULARY)
        client.connect(self._stages[0].place.address, self._stages[-1].place.address)
        return client

    def _pool(self) -> BlockPool:
        facts = self.client.facts
        return BlockPool(min(f.blocks for f in facts), min(f.context for f in facts))


ANSWER = 40
"""Tokens of each answer."""


@contextlib.contextmanager
def leading(
    stages: list[StageWorker],
    silence: int = SILENCE_MILLIS,
    dtype: StageDtype = StageDtype.AUTO,
) -> Iterator[Pipeline]:
    pipeline = Pipeline(stages, silence, dtype)
    try:
        yield pipeline
    finally:
        pipeline.client.close()


def until_closed(client: StageClient, seconds: float) -> str:
    """Why a group ended."""
    wait_until(lambda: client.closed is not None, seconds, "the group has ended")
    assert client.closed is not None
    return client.closed
