"""Engines on tiny models, stepped by hand: a target alone, with a draft beside it, and with one
behind a link.

Waits, costs and scales are forced, so that what runs depends on no time.
"""

import math
import random
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from numpy.typing import NDArray
from safetensors.numpy import load_file

from outrider.contract.settings import PolicySettings
from outrider.kernels.cpu.numeric_kind import NumericPath
from outrider.worker.checkpoints.config_file import read_config
from outrider.worker.checkpoints.translation import TargetTokens, Translation, translation
from outrider.worker.compiled_loop.loop import MOST_ROOTS
from outrider.worker.compiled_loop.run import RootOutput, RootPlanner
from outrider.worker.compiled_loop.runner import CompiledDraft, CompiledTarget
from outrider.worker.draft.batch import LEAF_ROWS, PREFILL_ROWS
from outrider.worker.draft.scheduler import DraftScheduler
from outrider.worker.draft.send_buffer import SendBuffer
from outrider.worker.draft.session import DraftSession
from outrider.worker.engine.runner import DraftRunner, TargetRunner
from outrider.worker.kv.kv_cache import HostKVCache
from outrider.worker.launch.colocated import LINK, ColocatedScheduler, LoopbackLink
from outrider.worker.messages import Finish, Finished, SetPolicy, Submit, Tokens
from outrider.worker.model.llama import Llama
from outrider.worker.sampling.logits_processor import LogitsProcessors
from outrider.worker.sampling.params import SamplingParams
from outrider.worker.speculation.acceptance import ErrorScale
from outrider.worker.speculation.gain import GainAccount
from outrider.worker.target import sessions
from outrider.worker.target.pass_costs import PassCostTable
from outrider.worker.target.scheduler import TargetScheduler
from outrider.worker.target.selection import RowSelector
from outrider.worker.target.sessions import TargetSessions
from tests.unit.worker.fakes import FlatCosts

VOCABULARY, DRAFT_VOCABULARY = 500, 490
"""Fewer than the models' columns: the rest is padding."""
ALLOWED = np.ones(VOCABULARY, np.bool_)
SAME = TargetTokens(ALLOWED)
TOKENS = (
    *(bytes([1 + i // 25, 101 + i % 25]) for i in range(VOCABULARY - 21)),
    *(bytes([byte]) for byte in (*range(1, 21), 104)),
)
"""Tokens of the target, where its draft has another tokenizer."""
FOREIGN_TOKENS = tuple(token for number, token in enumerate(TOKENS) if number % 25 != 3)[::-1]
"""Tokens of a draft with another tokenizer: most are the target's, in another order; those at 3,
28, … take two."""
CONTEXT, DRAFT_CONTEXT = 300, 260
EMBEDDING = "model.embed_tokens.weight"
ROWS = 33
POLICY = PolicySettings(version=1, off_below_percent=0, max_rows=8)
SAMPLINGS = (
    SamplingParams(),
    SamplingParams(temperature=0.8, top_p=0.9, seed=3),
    SamplingParams(repetition_penalty=1.3),
)
NEVER, ALWAYS = math.inf, 0.0
MOST_STEPS = 5000
TIMED = ("second", "latenc", "gain", "kv_slots_used")
"""In the names of counters that depend on time, and of the draft's blocks, of which a run takes one
early."""


def any_time_will_do(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have nothing that is sent depend on how long the last pass took."""
    monkeypatch.setattr(DraftSession, "has_long_link", False)
    monkeypatch.setattr(sessions, "TOGETHER_SECONDS", 0.0)


@dataclass(slots=True)
class TimelessAccount(GainAccount):
    """Each growth has to be worth as many tokens, whatever passes take."""

    price: float = 0.0
    pace: ClassVar = 1.0

    def growth_seconds(self, first: bool) -> float:
        return self.price * FreeRows().seconds(1, 1)

    def enter(self, sequences: int) -> bool:
        self.sequences, self.present.tried_at = sequences, math.inf  # none is tried
        return False

    def learn_pass(self, expected: float, seconds: float) -> None:
        pass

    def saw_latency(self, seconds: float, now: float) -> None:
        pass


class FreeRows(FlatCosts):
    """Node rows cost nothing, so each that could be reached runs, whatever the rate."""

    def curve(self, most: int, *rest: Any) -> NDArray[np.float64]:
        return np.full(most + 1, self.seconds(1, 1))


@cache
def weights_of(folder: Path, noise: float) -> dict[str, NDArray[np.float32]]:
    """Return the tiny model's weights, with noise in proportion to their deviation."""
    weights = load_file(folder / "model.safetensors")
    generator = np.random.default_rng(0)
    for name, matrix in weights.items():
        shift = noise * matrix.std() * generator.standard_normal(matrix.shape)
        weights[name] = (matrix + shift).astype(np.float32)
    return weights


@cache
def foreign_tokens(
    target: Sequence[bytes] = TOKENS,
    draft: Sequence[bytes] = FOREIGN_TOKENS,
    begin: Sequence[int] = (),
) -> TargetTokens:
    """Return the target's tokens as a draft of another tokenizer sees them."""
    made = translation(target, draft, len(draft), begin)
    return TargetTokens(made.allowed, made)


def model_of(
    folder: Path,
    noise: float = 0.0,
    made: Translation | None = None,
    path: NumericPath = NumericPath.FP32,
) -> Llama:
    """Return the tiny model; one with noise in its weights agrees with it now and then, in its own
    ids if it has another tokenizer."""
    config, weights = read_config(folder), dict(weights_of(folder, noise))
    if made is not None:
        rows = weights[EMBEDDING].copy()  # tied to the head
        rows[: len(made.target_ids)] = weights[EMBEDDING][made.target_ids]
        weights[EMBEDDING] = rows
    kv_cache = HostKVCache(config.kv_shape, 12, CONTEXT + ROWS)
    return Llama(config, weights, path, kv_cache, PREFILL_ROWS + LEAF_ROWS)


@dataclass
class TinyTarget:
    """A target on a tiny model; `roots`: most roots of a run, 0 for none."""

    folder: Path
    roots: int = MOST_ROOTS
    price: float = 0.3
    """Tokens that growth of a draft has to be worth."""
    outbox: list[Any] = field(default_factory=list)
    arrived: NDArray[np.int64] = field(default_factory=lambda: np.zeros(1, np.int64))
    path: NumericPath = NumericPath.FP32

    def __post_init__(self) -> None:
        self.model = model_of(self.folder, path=self.path)
        costs: Any = PassCostTable(FreeRows(), ROWS)
        account = TimelessAccount(price=self.price, growth_costs=lambda sequences: 0.0)
        selector = RowSelector(POLICY, pass_costs=costs, account=account)
        selector.scale = ErrorScale(rate=0.0)
        self.target = TargetScheduler(
            self.model.kv_cache,
            CONTEXT,
            2,
            TargetSessions(self.send_to_draft, selector),
            self.outbox,
            LogitsProcessors(VOCABULARY),
        )
        self.runner = CompiledTarget(
            TargetRunner(self.model, VOCABULARY), self.model, VOCABULARY, self.arrived
        )
        self.planner = RootPlanner(self.target)
        self.planner.most = self.roots
        self.target.runs = self.planner
        self.set_policy(POLICY)

    def send_to_draft(self, link: int, message: Any) -> None:
        """Send as the target; a draft there is none."""

    def set_policy(self, policy: PolicySettings) -> None:
        """Take a policy."""
        self.receive(SetPolicy(policy))

    def receive(self, message: Any) -> None:
        """Take one message of the server."""
        self.target.receive(message, time.monotonic())

    def submit(self, request: int, prompt: int, count: int, **changes: Any) -> None:
        """Ask for `count` tokens after a prompt of so many."""
        fields: dict[str, Any] = {
            "request": request,
            "prompt": np.arange(prompt, dtype=np.int32) % 97,
            "sampling": SAMPLINGS[0],
            "max_tokens": count,
            "end_ids": (),
            "speculate": True,
            "arrived": 0.0,
            "stream_seconds": NEVER,
        }
        self.receive(Submit(**(fields | changes)))

    def step(self) -> RootOutput | None:
        """Run one step; return its output if it was a run."""
        step = self.next()
        if step is None:
            return None
        output = self.run(step)
        self.settle(step, output)
        return output if isinstance(output, RootOutput) else None

    def next(self) -> Any:
        """Plan a step; None if there is nothing to do."""
        return self.target.next(time.monotonic(), may_wait=False)

    def run(self, step: Any) -> Any:
        """Run a step; return its output."""
        return self.runner.run(step)

    def settle(self, step: Any, output: Any) -> None:
        """Apply what a step did."""
        self.target.settle(step, output, time.monotonic())

    def first_run(self, steps: int = 40) -> RootOutput:
        """Step until there was a run; return its output."""
        for _ in range(steps):
            if (output := self.step()) is not None:
                return output
        raise AssertionError("there was no run")

    @property
    def busy(self) -> bool:
        """True if a request runs or waits."""
        return bool(self.target.admission.running or self.target.admission.waiting)

    def run_to_end(self) -> list[RootOutput]:
        """Step until nothing is left to do; return the outputs of runs."""
        outputs: list[RootOutput] = []
        for _ in range(MOST_STEPS):
            if not self.busy:
                return outputs
            if (output := self.step()) is not None:
                outputs.append(output)
        raise AssertionError(f"requests are left after {MOST_STEPS} steps")

    @property
    def passes(self) -> int:
        """Of the target, so far."""
        return self.target.stats.counters.steps

    def state(self) -> dict[str, Any]:
        """Return all that a run must leave as steps do, without times."""
        return {
            "messages": self.seen(),
            "latencies": sum(self.target.sessions.latencies.counts),
            "counters": counted(self.target.report().counters),
            "kv": self.model.kv_cache.usage,
            "running": [sequence_state(one) for one in self.target.admission.running],
        }

    def seen(self) -> list[tuple[Any, ...]]:
        """Return the server's messages so far, without times."""
        return [
            (m.request, m.finish, m.usage, m.detail)
            if isinstance(m, Finished)
            else (m.request, m.ids, m.passes)
            for m in self.outbox
            if isinstance(m, Finished | Tokens)
        ]

    def sent(self, request: int) -> list[Tokens]:
        """Return the messages with tokens of an answer so far."""
        return [m for m in self.outbox if isinstance(m, Tokens) and m.request == request]

    def text(self, request: int = 1) -> list[int]:
        """Return the tokens of an answer so far."""
        return [token for message in self.sent(request) for token in message.ids]

    def finish(self, request: int) -> Finish | None:
        """Return how an answer ended; None if it has not."""
        ends = [m for m in self.outbox if isinstance(m, Finished) and m.request == request]
        return ends[0].finish if ends else None


@dataclass
class TinyColocated(TinyTarget):
    """A target with a draft on the same loop; where `roots` is 0 both go by steps in Python."""

    tokens: TargetTokens = SAME
    """The target's, as the draft sees them."""

    def __post_init__(self) -> None:
        self.link = LoopbackLink()
        super().__post_init__()
        self.draft, draft_runner, self.draft_model = draft_of(
            self.folder, self.link.send_to_target, self.tokens, self.path
        )
        self.scheduler = ColocatedScheduler(
            self.target, self.runner, self.draft, draft_runner, self.link, self.tokens
        )
        self.target.runs = None
        if self.roots:
            self.planner = self.scheduler.runs = RootPlanner(self.target, self.draft, LINK)
            self.planner.most = self.roots
            self.runner.draft = CompiledDraft(
                draft_runner, self.draft_model, self.draft.rows, self.tokens.allowed
            )

    def send_to_draft(self, link: int, message: Any) -> None:
        self.link.send_to_draft(link, message)

    def next(self) -> Any:
        return self.scheduler.next(time.monotonic())

    def run(self, step: Any) -> Any:
        return self.scheduler.run(step)

    def settle(self, step: Any, output: Any) -> None:
        self.scheduler.settle(step, output, time.monotonic())

    def state(self) -> dict[str, Any]:
        self.scheduler.deliver(time.monotonic())  # a step's commits are still on their way
        return super().state() | {
            "draft's counters": counted(self.draft.report().counters),
            "sessions": [session_state(one) for one in self.draft.sessions.live.values()],
        }


@dataclass
class TinyLinked(TinyTarget):
    """A target that goes by steps, and a draft behind a link with as much delay as chance likes."""

    rng: random.Random = field(default_factory=lambda: random.Random(0))
    tokens: TargetTokens = SAME
    """The target's, as the draft sees them."""

    def __post_init__(self) -> None:
        self.roots, self.link = 0, 0
        super().__post_init__()
        self.connect()

    def connect(self) -> None:
        """A new draft takes the place of the last one, with all that was on the link."""
        if self.link:
            self.target.sessions.link_down(self.link)
        self.link += 1
        self.to_draft: deque[Any] = deque()
        self.to_target: deque[Any] = deque()
        self.draft, self.draft_runner, _ = draft_of(
            self.folder, lambda link, messages: self.to_target.extend(messages), self.tokens
        )
        self.draft.sessions.link_up(self.link, *self.tokens)
        self.target.sessions.link_up(self.link, ALLOWED)

    def send_to_draft(self, link: int, message: Any) -> None:
        self.to_draft.append(message)

    def next(self) -> Any:
        """Plan a step of the target, after some of what may happen beside it."""
        rng, now = self.rng, time.monotonic()
        for _ in range(rng.choice((0, 1, len(self.to_draft)))):
            if self.to_draft:
                self.draft.apply(self.link, self.to_draft.popleft(), now)
        for _ in range(rng.randint(0, 4)):
            if (step := self.draft.next(now)) is not None:
                self.draft.settle(step, self.draft_runner.run(step), now)
        for _ in range(rng.choice((0, 1, len(self.to_target)))):
            if self.to_target:
                self.target.sessions.receive(self.link, [self.to_target.popleft()], now)
        return super().next()


def draft_of(
    folder: Path,
    send: Callable[[int, Any], None],
    tokens: TargetTokens = SAME,
    path: NumericPath = NumericPath.FP32,
) -> tuple[DraftScheduler, DraftRunner, Llama]:
    """Return a draft's scheduler, its runner and its model."""
    made = tokens.translation
    model = model_of(folder, 0.1, made, path)
    buffer = SendBuffer(send, coalesce=False)
    if made is not None:
        size = len(made.target_ids)
        scheduler = DraftScheduler(model.kv_cache, DRAFT_CONTEXT, 2, size, buffer)
        return scheduler, DraftRunner(model, None, size), model
    scheduler = DraftScheduler(model.kv_cache, DRAFT_CONTEXT, 2, VOCABULARY, buffer)
    return scheduler, DraftRunner(model, tuple(range(DRAFT_VOCABULARY)), VOCABULARY), model


def counted(counters: Any) -> dict[str, Any]:
    """Return counters by name, without those that depend on time."""
    names = [name for name in counters.__slots__ if not any(word in name for word in TIMED)]
    return {name: getattr(counters, name) for name in names}


def sequence_state(sequence: Any) -> tuple[Any, ...]:
    mirror = sequence.mirror
    return (
        sequence.submit.request,
        sequence.committed().tolist(),
        (sequence.computed, sequence.growths, sequence.unsent),
        (sequence.unsent_sizes, sequence.usage),
        (sequence.kv.table.tolist(), sequence.kv.published),
        (mirror.root_position, mirror.last_id, mirror.acknowledged),
        [column.tolist() for column in (mirror.parent, mirror.token, mirror.first_id)],
        sequence.session and (sequence.session.told, sequence.session.nodes_ahead),
    )


def session_state(session: DraftSession) -> tuple[Any, ...]:
    nodes, candidates = session.tree.nodes, session.tree.candidates
    return (
        session.tokens[: session.length].tolist(),
        (session.growths, session.tree.cached, session.tree.root_position),
        [column.tolist() for column in (nodes.parent, nodes.token, nodes.slot, nodes.id)],
        sorted(zip(candidates.parent.tolist(), candidates.token.tolist(), strict=True)),
    )


def assert_same(one: dict[str, Any], other: dict[str, Any]) -> None:
    """Fail with the part in which two states differ."""
    for name, part in one.items():
        assert part == other[name], (name, part, other[name])
