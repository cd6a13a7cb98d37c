"""The gRPC side of the fake worker: health, Control and Inference with made-up tokens."""

import asyncio
import os
import signal
import sys
import time
from pathlib import Path

import grpc
from grpc import aio
from grpc_health.v1 import health, health_pb2, health_pb2_grpc

from outrider.contract.settings import Role, WorkerSettings
from outrider.protos.v1 import inference_pb2, inference_pb2_grpc
from outrider.protos.v1.internal import control_pb2, control_pb2_grpc

SERVING, NOT_SERVING = (
    health_pb2.HealthCheckResponse.SERVING,
    health_pb2.HealthCheckResponse.NOT_SERVING,
)
TOKENS = 8
ADDRESS_IN_USE = 3


class Inference(inference_pb2_grpc.InferenceServicer):
    """Answers with the prompt's words, over and over. `turn` is answered with the process id, one
    request at a time; `keep` begins such an answer and never ends it."""

    def __init__(self, settings: WorkerSettings) -> None:
        self.settings = settings
        self.turn = asyncio.Lock()
        self.waiting = 0
        self.drafted = 0

    async def ListModels(self, request, context):
        model = inference_pb2.Model(name=self.settings.name, has_chat_template=True)
        return inference_pb2.ListModelsResponse(models=[model])

    async def Generate(self, request, context):
        if request.max_tokens > 1000:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "max_tokens: at most 1000")
        words = (request.text or request.chat.messages[-1].content).split()
        if words[0] == "hang":
            await asyncio.Event().wait()
        if words[0] in ("turn", "keep"):
            words = [str(os.getpid())]
            self.waiting += 1
            async with self.turn:
                self.waiting -= 1
                if request.text == "keep":
                    yield inference_pb2.GenerateResponse(token_ids=[0], text=words[0], passes=1)
                    await asyncio.Event().wait()
        for i in range(TOKENS):
            text = words[i % len(words)] + " "
            yield inference_pb2.GenerateResponse(token_ids=[i], text=text, passes=1)
        asked = request.speculate or not request.HasField("speculate")
        drafted = asked and self.settings.policy.speculate
        self.drafted += drafted
        yield _last(request, drafted)


def _last(request, drafted: bool) -> inference_pb2.GenerateResponse:
    seed = request.sampling.seed if request.sampling.HasField("seed") else 4321
    passes = 4 if drafted else TOKENS - 1
    return inference_pb2.GenerateResponse(
        finish_reason=inference_pb2.FINISH_REASON_STOP,
        seed=seed,
        usage=inference_pb2.Usage(
            prompt_tokens=3, completion_tokens=TOKENS, passes=passes,
            draft_rows=20 * drafted, accepted_rows=4 * drafted, passes_with_nodes=3 * drafted,
            first_guesses=4 * drafted, first_hits=3 * drafted,
        ),
        timing=inference_pb2.Timing(
            first_token_seconds=0.05, total_seconds=0.1 * passes,
            decode_seconds=0.1 * passes, plain_seconds=0.7,
        ),
    )  # fmt: skip


class Control(control_pb2_grpc.ControlServicer):
    """Keeps the newest policy; every draft in it counts as linked. A service named `loses` seems to
    be busy all the time and to draft at 0.8 of plain decoding's speed."""

    def __init__(
        self, settings: WorkerSettings, inference: Inference, states: health.aio.HealthServicer
    ) -> None:
        self.settings = settings
        self.inference = inference
        self.states = states
        self.policy = control_pb2.Policy(version=settings.policy.version)

    async def SetPolicy(self, request, context):
        if request.policy.version > self.policy.version:
            self.policy = request.policy
        return self._state()

    async def Measure(self, request, context):
        """Made-up passes; a service named `dear` pays for a row what a pass costs."""
        if self.settings.name == "dies" and self.settings.role is Role.DRAFT and request.passes:
            os._exit(1)
        if self.settings.name == "slow" and request.passes:
            await asyncio.Event().wait()
        refused = "the draft does not fit" if self.settings.name == "alone" else ""
        row = 0.010 if self.settings.name == "dear" else 0.0003
        seconds = [0.001 if one.draft else 0.010 + (one.rows - 1) * row for one in request.passes]
        guesses = 40 if request.prompts and not refused else 0
        return control_pb2.MeasureResponse(
            seconds=seconds, guesses=guesses, hits=guesses * 3 // 4, refused=refused
        )

    async def Arrange(self, request, context):
        self.settings = self.inference.settings = WorkerSettings.from_json(request.settings)
        await self.states.set("", SERVING)
        return control_pb2.ArrangeResponse()

    async def GetState(self, request, context):
        return self._state()

    def _state(self) -> control_pb2.State:
        links = [
            control_pb2.Link(address=address, state=control_pb2.LINK_STATE_UP)
            for address in self.policy.drafts
        ]
        return control_pb2.State(
            role=self.settings.role, model=self.settings.name, ready=True, dtype="fp32",
            threads=self.settings.threads, policy=self.policy, links=links,
            waiting=self.inference.waiting, counters=self._counters(),
            drafting="on" if self.policy.speculate else "disabled",
        )  # fmt: skip

    def _counters(self) -> control_pb2.Counters:
        if self.settings.name != "loses":
            drafted = self.inference.drafted  # answers, as `_last` has them
            return control_pb2.Counters(first_guesses=4 * drafted, first_hits=3 * drafted)
        passes = int(1000 * time.monotonic())
        return control_pb2.Counters(
            passes=passes, drafted_passes=passes, tokens=passes,
            plain_seconds=0.8 * passes, spent_seconds=1.0 * passes,
        )  # fmt: skip


async def meet(folder: Path, role: Role) -> None:
    """Waits until the target and the draft have both begun."""
    (folder / role).touch()
    while not all((folder / one).exists() for one in Role):
        await asyncio.sleep(0.01)


async def serve(settings: WorkerSettings, parent: int) -> int:
    """Serves until SIGTERM, or until the parent's pipe ends."""
    marker = Path(f"{settings.cache}/{settings.role}-started")
    first = not marker.exists()
    marker.touch()
    if settings.name == "taken" and first:
        return ADDRESS_IN_USE
    if settings.name == "meets":
        await meet(Path(settings.link_dir or ""), settings.role)
    if settings.name == "falls" and settings.role is Role.TARGET:
        print("the weights are upside down", file=sys.stderr)
        return 1
    inside = settings.colocated and not settings.await_arrangement
    if settings.name == "alone" and (inside or settings.role is Role.DRAFT):
        print("the draft does not fit", file=sys.stderr)
        return 1
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    stubborn = settings.name == "stubborn"
    loop.add_signal_handler(signal.SIGTERM, (lambda: None) if stubborn else stop.set)
    loop.add_reader(parent, os._exit, 0)
    server = aio.server(options=[("grpc.so_reuseport", 0)])
    inference = Inference(settings)
    servicer = health.aio.HealthServicer()
    control = Control(settings, inference, servicer)
    control_pb2_grpc.add_ControlServicer_to_server(control, server)
    if settings.role is Role.TARGET:
        inference_pb2_grpc.add_InferenceServicer_to_server(inference, server)
    health_pb2_grpc.add_HealthServicer_to_server(servicer, server)
    await servicer.set("", NOT_SERVING if settings.await_arrangement else SERVING)
    server.add_insecure_port(settings.listen)
    await server.start()
    await stop.wait()
    await server.stop(None)
    return 0
