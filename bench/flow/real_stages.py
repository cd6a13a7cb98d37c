"""Real stages for the leaders of the simulation: processes, links between them, and a clock.

    with running(setting, scratch) as stages, linked(stages, links) as client:
        outcome = PlainLeader(setting, language, plan, RealStages(client)).run()

The stages are the product's, padded (`padded_stage`); gRPC goes through relays that shape it.
"""

import asyncio
import contextlib
import functools
import os
import secrets
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from bench.flow.clock import Clock
from bench.flow.outcome import Span
from bench.flow.recording import Recording, Trip
from bench.flow.setting import Links, Setting
from bench.serial import colocated
from bench.sides import SERVICE
from outrider.cli.service_file import read_service
from outrider.contract.settings import Dtype, PipelineSettings, StageDtype, WorkerSettings
from outrider.contract.stages import StagePlace
from outrider.worker.__main__ import QUIET_LIBRARIES
from outrider.worker.errors import StageLost
from outrider.worker.launch.prepare import prepare_models
from outrider.worker.pipeline.records import BEGAN, ENDED, ROWS, Record, Results, Segment
from outrider.worker.pipeline.wire.hello import Group
from outrider.worker.pipeline.wire.stage_client import StageClient
from outrider.worker.server.stage_processes import ANY_PORT, reserved_ports

SILENCE_MILLIS = 60_000
"""No stage is given up, however busy the machine is."""
READY_SECONDS = 300.0
VOCABULARY = 49152
"""Of the demo's target."""
RESULT_SECONDS = 60.0
"""Far more than any segment takes."""


class RealClock(Clock):
    """The machine's own time, in which results come from outside."""

    def __init__(self, receive: Callable[[float], Sequence[Results]]) -> None:
        super().__init__()
        self._receive = receive
        self.arrive: Callable[[Results], None] = lambda results: None
        self._tick()

    def run(self, until: Callable[[], bool]) -> None:
        """Let events happen when they are due, and results whenever they come."""
        while not until():
            self._tick()
            wait = self._events[0][0] - self.now if self._events else RESULT_SECONDS
            if wait <= 0:
                self.pop()()
                continue
            for results in self._receive(wait):
                self._tick()
                self.arrive(results)

    def _tick(self) -> None:
        self.now = time.monotonic()


class RealStages:
    """Stages in other processes, for one request."""

    def __init__(self, client: StageClient) -> None:
        self._client = client
        self._before = client.sent_bytes
        self._sent: dict[int, float] = {}
        """When each segment left that is not back, by number."""
        self.clock = RealClock(client.receive)
        self.recording = Recording()
        self.spans: list[Span] = []

    def begin(self, arrive: Callable[[Results], None]) -> None:
        """Hand results over to `arrive`."""

        def came(results: Results) -> None:
            self._note(results)
            arrive(results)

        self.clock.arrive = came

    def send(self, record: Record) -> None:
        """Send a record to the first stage."""
        if isinstance(record, Segment):
            self._sent[record.number] = time.monotonic()
        self._client.send(record)

    @property
    def sent_bytes(self) -> int:
        """Bytes from the leader; those between stages are not seen from here."""
        return self._client.sent_bytes - self._before

    def finish(self, rest: Sequence[Record]) -> None:
        """Send what ends the request, and wait until nothing of it is under way."""
        for record in rest:
            self.send(record)
        while self._sent:
            found = self._client.receive(RESULT_SECONDS)
            if not found:
                raise TimeoutError(f"segments {sorted(self._sent)} do not come back")
            for results in found:
                self._note(results)

    def _note(self, results: Results) -> None:
        sent = self._sent.pop(results.segment)
        self.recording.trips.append(Trip(sent, results.visits, results.arrived))
        self.spans += [
            Span(stage, float(v[BEGAN]), float(v[ENDED]), int(v[ROWS]))
            for stage, v in enumerate(results.visits)
            if v[ROWS]
        ]


@dataclass(frozen=True, slots=True)
class StageProcesses:
    """Stages that run, and where others reach them."""

    revision: str
    ports: list[int]
    relayed: list[int]
    """Ports at which links to them begin."""
    processes: list["subprocess.Popen[bytes]"]

    def check(self) -> None:
        """Raise `RuntimeError` if one has ended."""
        for index, process in enumerate(self.processes):
            if process.poll() is not None:
                raise RuntimeError(f"stage {index} has ended with status {process.returncode}")


@contextlib.contextmanager
def running(setting: Setting, scratch: Path, padded: bool) -> Iterator[StageProcesses]:
    """Start stages, which take a setting's times if they are padded; end them.

    They load meanwhile: who begins a group waits for them.
    """
    count = setting.count
    settings = stage_settings(count)
    file = scratch / "stage.json"
    file.write_text(settings.to_json())
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(one) for one in reserved_ports(2 * count)]
        ports = [one.getsockname()[1] for one in sockets]
        own, relayed = ports[:count], ports[count:]
        processes = []
        for index in range(count):
            ways = [*relayed[:index], own[index], *relayed[index + 1 :]]
            addresses = tuple(f"127.0.0.1:{port}" for port in ways)
            place = StagePlace(index, addresses, reserved=True)
            seconds = (setting.stage(index, 1), setting.stage(index, 2) - setting.stage(index, 1))
            seconds = seconds if padded else (0.0, 0.0)
            command = ["bench.flow.padded_stage", "--settings", str(file)]
            command += ["--seconds", *map(str, seconds)]
            processes.append(start(stack, command, place.variables()))
        revision = prepare_models(settings).own.revision
        yield StageProcesses(revision, own, relayed, processes)


@contextlib.contextmanager
def linked(stages: StageProcesses, links: Links) -> Iterator[StageClient]:
    """Join leader and stages by links; part them again."""
    pairs = zip(stages.relayed, stages.ports, strict=True)
    relay = ["bench.flow.relay", str(links.bits_per_second), str(links.delay)]
    with contextlib.ExitStack() as stack:
        process = start(stack, [*relay, *(f"{here}={there}" for here, there in pairs)])
        assert process.stdout is not None
        process.stdout.readline()  # it listens
        client = joined(stages)
        stack.callback(client.close)
        yield client


def joined(stages: StageProcesses) -> StageClient:
    """Begin a group, once all stages are ready and the one before has ended everywhere.

    Raises `StageLost` with what is missing, and `RuntimeError` if a stage has ended.
    """
    ends = [f"127.0.0.1:{stages.relayed[at]}" for at in (0, -1)]
    until = time.monotonic() + READY_SECONDS
    while True:
        numbers = secrets.randbits(63), stages.revision, len(stages.ports)
        group = Group(*numbers, StageDtype.FP16, SILENCE_MILLIS)
        client = StageClient(group, loop_on_thread(), VOCABULARY)
        try:
            client.connect(*ends)
            return client
        except StageLost:
            stages.check()
            if time.monotonic() > until:
                raise
            time.sleep(0.1)


def stage_settings(count: int) -> WorkerSettings:
    """Return what all stages of the demo's target have in common: fp32, one thread."""
    base = colocated(read_service(SERVICE), 1)
    return replace(
        base,
        colocated=None,
        model=replace(base.model, dtype=Dtype.FP32),
        pipeline=PipelineSettings(stages=count, dtype=StageDtype.FP16, silence_ms=SILENCE_MILLIS),
        max_running=1,
        processors=(),
        listen=ANY_PORT,
        http_listen="",
    )


def start(
    stack: contextlib.ExitStack, command: Sequence[str], environ: dict[str, str] | None = None
) -> "subprocess.Popen[bytes]":
    """Start a module as a process that ends with the stack, or with this process."""
    process = subprocess.Popen(
        [sys.executable, "-m", *command],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, **QUIET_LIBRARIES, **(environ or {})},
    )

    def end() -> None:
        assert process.stdin is not None
        process.stdin.close()
        process.wait(30)
        assert process.stdout is not None
        process.stdout.close()

    stack.callback(end)
    return process


@functools.cache
def loop_on_thread() -> asyncio.AbstractEventLoop:
    """Return a loop that runs until the process ends."""
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, daemon=True).start()
    return loop
