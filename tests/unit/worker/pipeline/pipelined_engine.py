"""The engine of a pipelined target over stages in the test's own thread, a draft and a server."""

import random
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any

import numpy as np

from outrider.contract.settings import PolicySettings
from outrider.worker.errors import StageLost
from outrider.worker.kv.block_pool import BLOCK, BlockPool
from outrider.worker.link.wire import Commit, FromTarget, Grow, Limits, Open
from outrider.worker.messages import (
    EngineReport,
    Finished,
    FromPeer,
    LinkUp,
    StageGroupState,
    Submit,
    Timeline,
    Tokens,
)
from outrider.worker.model.layer_range import LayerRange
from outrider.worker.model.rows import Rows
from outrider.worker.pipeline.draft_control import PipelinedDraftControl
from outrider.worker.pipeline.leader import Leader, LeaderLimits
from outrider.worker.pipeline.loop import PipelinedEngine
from outrider.worker.pipeline.planner import PipelinePlanner
from outrider.worker.pipeline.records import Floats, Ints, Record, Results
from outrider.worker.pipeline.scheduler import PipelinedScheduler
from outrider.worker.pipeline.segment_size import SegmentPlan
from outrider.worker.pipeline.stage import Stage
from outrider.worker.pipeline.stage_group import Facts, StageGroupLinks
from outrider.worker.pipeline.stage_sampler import StageSampler
from outrider.worker.pipeline.wire.hello import StageFacts
from outrider.worker.sampling.logits_processor import LogitsProcessors
from outrider.worker.sampling.params import SamplingParams
from outrider.worker.target.sessions import TargetSessions
from tests.unit.worker.pipeline.hash_stages import VOCABULARY, HashCut, HashLayers
from tests.unit.worker.pipeline.path_draft import PathDraft

LINK = 1
BLOCKS = 24
NO_DRAFTS_OFF = PolicySettings(off_below_percent=0)
NEVER = 1e12
"""Seconds of a clock: later than any test."""


class Stages:
    """Stages of which one may be missing; one life of their group at a time."""

    def __init__(self, count: int) -> None:
        self.model = HashCut(count)
        self.missing = ""
        """Why no group can begin; empty: one can."""
        self.rows = 64
        """Most rows of a segment."""
        self.lives: list[Life] = []
        self.poisoned: Callable[[Rows], bool] = lambda rows: False
        """True for rows at which the last stage fails."""
        self.company: list[int] = []
        """Sequences that had begun and not ended, each time that it did."""

    def new_life(self, number: int) -> "Life":
        assert all(life.ended for life in self.lives), "two lives at once"
        self.lives.append(Life(self))
        return self.lives[-1]

    def lose(self, reason: str) -> None:
        """A stage dies: its group ends, and none begins."""
        self.missing = reason
        if self.lives:
            self.lives[-1].end(reason)


class Poisonable:
    """Layers that fail at poisoned rows."""

    def __init__(self, layers: HashLayers, stages: Stages) -> None:
        self._layers = layers
        self._stages = stages

    def compute(self, rows: Rows, hidden: Floats | None) -> Floats:
        if self._stages.poisoned(rows):
            raise ValueError("poison")
        return self._layers.compute(rows, hidden)

    def move(self, sources: Ints, destinations: Ints) -> None:
        self._layers.move(sources, destinations)


class Life:
    """One life of the group; what is sent is computed at once, and its results wait."""

    def __init__(self, stages: Stages) -> None:
        self._stages = stages
        self._chain = [self._stage(number) for number in range(stages.model.stages)]
        self.results: deque[Results] = deque()
        self.closed: str | None = None

    @property
    def ended(self) -> bool:
        return self.closed is not None

    def begin(self, first: str, last: str) -> "Future[Facts]":
        beginning: Future[Facts] = Future()
        if self._stages.missing:
            self.closed = self._stages.missing
            beginning.set_exception(StageLost(self.closed))
        else:
            beginning.set_result(tuple(self._facts(n) for n in range(len(self._chain))))
        return beginning

    def send(self, message: Record) -> None:
        """Hand a record through all stages; one that fails ends the group."""
        if self.closed is not None:
            return
        try:
            self._pass_on(message)
        except ValueError as error:
            self._stages.company.append(self._chain[-1].sequences)
            self.end(f"stage {len(self._chain) - 1}: it failed: {error}")

    def _pass_on(self, message: Record) -> None:
        passed: list[Any] = [message]
        for stage in self._chain:
            for record in passed:
                stage.receive(record)
            while stage.step():
                pass
            passed = list(stage.outgoing)
            stage.outgoing.clear()
        self.results += passed

    def poll(self) -> Sequence[Results]:
        """Bring one result at a time, so that several segments are under way."""
        if self.closed is not None:
            raise StageLost(self.closed)
        return [self.results.popleft()] if self.results else []

    def end(self, reason: str) -> None:
        self.closed = self.closed or reason

    def close(self, reason: str) -> None:
        self.end(reason)

    def _stage(self, number: int) -> Stage:
        layers = self._stages.model.layers(number, BLOCKS * BLOCK)
        last = number == self._stages.model.stages - 1
        executor = Poisonable(layers, self._stages) if last else layers
        return Stage(executor, StageSampler(LogitsProcessors(VOCABULARY)) if last else None)

    def _facts(self, number: int) -> StageFacts:
        of = self._stages.model.stages
        layers = LayerRange(number, number + 1, of)
        return StageFacts(number, layers, "fp32", BLOCKS, self._stages.rows, 6 * BLOCK)


class Target:
    """An engine, its server's end of the transport, and a draft that is often right."""

    direct: Any = None

    def __init__(
        self,
        stages: int = 2,
        policy: PolicySettings = NO_DRAFTS_OFF,
        planning: type[PipelinePlanner] = PipelinePlanner,
    ) -> None:
        self.stages = Stages(stages)
        self.inbox: list[Any] = []
        self.texts: dict[int, list[int]] = {}
        self.finished: dict[int, Finished] = {}
        self.report = EngineReport()
        self.groups: list[StageGroupState] = []
        self.timelines: list[Timeline] = []
        self.waits: list[float | None] = []
        self.requests: dict[int, Submit] = {}
        self._drafts: dict[int, tuple[int, PathDraft]] = {}
        self.blocks = BLOCKS
        """KV of the stages."""
        self._resting: set[int] = set()
        """Sessions that were told to draft nothing."""
        self._random = random.Random(0)
        plan = SegmentPlan(4, stages + 1, prompt_rows=16, most_rows=4, pays=0.0)
        self.leader = leader = Leader(self.pool(()), plan, LeaderLimits(2, tree_blocks=1))
        control = PipelinedDraftControl(policy)
        sessions = TargetSessions(self._to_draft, control)
        scheduler = PipelinedScheduler(leader, planning(plan, stages), sessions, [])
        group = StageGroupLinks("first", "last", self.stages.new_life, lambda: None)
        self.engine = PipelinedEngine(scheduler, group, self, self.pool)

    def pool(self, facts: Facts) -> BlockPool:
        return BlockPool(self.blocks, 6 * BLOCK)

    def submit(
        self,
        prompt: Sequence[int],
        tokens: int,
        start_by: float = NEVER,
        prediction: Sequence[int] = (),
        **sampling: Any,
    ) -> int:
        number = len(self.requests)
        request = Submit(
            number,
            np.array(prompt, np.int32),
            SamplingParams(**sampling),
            tokens,
            (),
            True,
            float(number),
            start_by=start_by,
            stream_seconds=0.0,
            prediction=np.array(prediction, np.int32),
        )
        self.requests[number], self.texts[number] = request, []
        self.inbox.append(request)
        return number

    def link_draft(self) -> None:
        self.inbox.append(LinkUp(LINK, np.ones(VOCABULARY, np.bool_)))

    def grow_all(self) -> int:
        """Have growth arrive for every open session; return how many messages that are."""
        before = len(self.inbox)
        for session in self._drafts:
            self._grow(session)
        return len(self.inbox) - before

    def truth(self, number: int) -> list[int]:
        """What plain decoding writes."""
        request = self.requests[number]
        path = tuple(request.prompt.tolist())
        for _ in range(request.max_tokens):
            path = (*path, self._next(request, path))
        return list(path[len(request.prompt) :])

    def run(self, steps: int = 2000, until: Any = None) -> None:
        """Steps until all requests have ended, or `until` holds."""
        for _ in range(steps):
            if until() if until else len(self.finished) == len(self.requests):
                return
            self.engine.step()
        raise AssertionError(f"{len(self.finished)} of {len(self.requests)} requests have ended")

    def drain(self) -> list[Any]:
        messages, self.inbox = self.inbox, []
        return messages

    def drain_peers(self) -> list[Any]:
        raise AssertionError("all growth comes with other messages")

    def wait(self, seconds: float | None) -> None:
        self.waits.append(seconds)

    def send(self, *messages: Any) -> None:
        for message in messages:
            match message:
                case Tokens(request=request, ids=ids):
                    self.texts[request] += ids
                case Finished(request=request):
                    assert request not in self.finished
                    self.finished[request] = message
                case EngineReport():
                    self.report = message
                case StageGroupState():
                    self.groups.append(message)
                case Timeline():
                    self.timelines.append(message)

    def _next(self, request: Submit, path: tuple[int, ...]) -> int:
        return self.stages.model.next_token(path, len(request.prompt), request.sampling)

    def _to_draft(self, link: int, message: FromTarget) -> None:
        match message:
            case Open(session=session, tokens=tokens, prompt=prompt):
                known = tuple(tokens.tolist())
                number = next(
                    n
                    for n, one in self.requests.items()
                    if one.prompt.tolist() == list(known[:prompt])
                )
                self._drafts[session] = number, PathDraft(known)
                self._grow(session)
            case Commit(session=session, tokens=tokens):
                _, draft = self._drafts[session]
                draft.hear((*draft.tokens, *tokens.tolist()))
                self._grow(session)
            case Limits(nodes_ahead=0, session=session):
                self._resting.add(session)

    def _grow(self, session: int) -> None:
        if session in self._resting:
            return
        number, draft = self._drafts[session]
        request = self.requests[number]

        def token(path: tuple[int, ...]) -> int:
            right = self._random.random() < 0.8
            return self._next(request, path) if right else self._random.randrange(VOCABULARY)

        draft.grow(lambda parents: parents - 1, token, most=4)
        growth = draft.sent.popleft()
        if len(growth.tokens):
            self.inbox.append(FromPeer(LINK, [Grow(session, growth)]))
