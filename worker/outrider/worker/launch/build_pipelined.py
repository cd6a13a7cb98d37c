"""A pipelined target's engine: its leader and its links to the stages, which are other processes.

Loads no weights. Leaves the stages to `load_stage` and what starts them, the loop to `engine`.
"""

import logging
import os
import time
from typing import Any

import numpy as np

from outrider.contract.settings import SettingsError, StageLink, WorkerSettings
from outrider.contract.stages import StagePlace
from outrider.worker.engine.transport import TargetTransport
from outrider.worker.errors import ModelError
from outrider.worker.host.peers import beyond_loopback
from outrider.worker.kv.block_pool import BLOCK, BlockPool
from outrider.worker.launch.prepare import Models
from outrider.worker.launch.warmup import PROMPT, arbitrary_growth
from outrider.worker.link.wire import FromTarget
from outrider.worker.messages import Progress, Ready, StageGroupState, Submit, ToPeer
from outrider.worker.pipeline.draft_control import PipelinedDraftControl
from outrider.worker.pipeline.leader import Leader, LeaderLimits
from outrider.worker.pipeline.loop import STAGE_NEWS, PipelinedEngine
from outrider.worker.pipeline.planner import PipelinePlanner
from outrider.worker.pipeline.records import Results, Segment
from outrider.worker.pipeline.scheduler import PipelinedScheduler
from outrider.worker.pipeline.segment_size import SegmentPlan
from outrider.worker.pipeline.stage_group import Facts, StageGroupLinks
from outrider.worker.pipeline.text_search import TextSearch
from outrider.worker.pipeline.wire.hello import LINKS, Group
from outrider.worker.pipeline.wire.stage_client import StageClient
from outrider.worker.sampling.params import SamplingParams
from outrider.worker.speculation.acceptance import ALL_SOURCES
from outrider.worker.target.sessions import TargetSessions

logger = logging.getLogger(__name__)

TURNS = 6
GRANTED = 16
TOKEN = 4
"""What every row chooses: a token of the growth, so that walks fall in."""


def build_pipelined(
    settings: WorkerSettings, models: Models, transport: TargetTransport
) -> tuple[PipelinedEngine, Ready]:
    """Wait for all stages, then build the engine; return it and what it can do.

    Raises `ModelError` if the stages cannot work together, and `ChannelClosed`.
    """
    warm_up_leader(models.vocabulary)
    group = stage_group(settings, models, transport)
    facts, early = first_group(group, transport)
    outbox: list[Any] = []

    def send(link: int, message: FromTarget) -> None:
        to_peer = ToPeer(link, (message,))
        if not transport.direct.send(to_peer):
            outbox.append(to_peer)

    def pool_of(facts: Facts) -> BlockPool:
        return empty_pool(facts, settings.prefix_cache)

    control = PipelinedDraftControl(settings.policy)
    limits = LeaderLimits(settings.max_running)
    leader = Leader(pool_of(facts), first_plan(facts), limits)
    planner = PipelinePlanner(leader.plan, len(facts))
    scheduler = PipelinedScheduler(leader, planner, TargetSessions(send, control), outbox)
    engine = PipelinedEngine(scheduler, group, transport, pool_of, early)
    return engine, ready(settings, models, facts)


def stage_group(
    settings: WorkerSettings, models: Models, transport: TargetTransport
) -> StageGroupLinks:
    """Return the group of this target's stages, not begun yet; raises `SettingsError`."""
    pipeline = settings.pipeline
    place = StagePlace.of(os.environ, pipeline.stages)
    if place is None:
        raise SettingsError("the addresses of the stages are missing in the environment")

    distributed = pipeline.link is StageLink.DISTRIBUTED
    peers = beyond_loopback(settings.peers, place.address)

    def notify() -> None:
        transport.wake(STAGE_NEWS)

    def new_life(number: int) -> StageClient:
        group = Group(
            number,
            models.own.revision,
            pipeline.stages,
            pipeline.dtype,
            pipeline.silence_ms,
            distributed,
        )
        return StageClient(group, transport.loop, models.vocabulary, notify, peers)

    addresses = own_address(place), place.addresses[-1]
    return StageGroupLinks(*addresses, new_life, notify, LINKS[distributed])


def own_address(place: StagePlace) -> str:
    """Return where the first stage, which is on this machine, is reached."""
    return f"127.0.0.1:{place.address.rpartition(':')[2]}"


def first_group(group: StageGroupLinks, transport: TargetTransport) -> tuple[Facts, list[Any]]:
    """Wait until the group is up; return its facts, and the messages that came meanwhile.

    Raises `ModelError` if the stages cannot work together, `ChannelClosed` if the server is gone.
    """
    early: list[Any] = []
    told = ""
    while True:
        now = time.monotonic()
        facts = group.advance(now)
        if facts is not None:
            return facts, early
        if group.refused:
            raise ModelError(f"the stages cannot work together: {group.detail}")
        if group.detail != told:
            told = group.detail
            transport.send(
                Progress(f"waiting for its stages: {told}"), StageGroupState(False, told)
            )
        transport.wait(group.max_wait(now))
        early += [message for message in transport.drain() if message is not STAGE_NEWS]


def empty_pool(facts: Facts, prefix_cache: bool) -> BlockPool:
    """Return the KV that every stage has room for."""
    blocks, context = min(f.blocks for f in facts), min(f.context for f in facts)
    return BlockPool(blocks, context, prefix_cache=prefix_cache)


def first_plan(facts: Facts) -> SegmentPlan:
    """Return the plan before anything is measured: a few rows a segment, one segment a stage and
    one more, and prompts in as many rows as stages take."""
    rows = min(f.rows for f in facts)
    return SegmentPlan(rows=4, in_flight=len(facts) + 1, prompt_rows=rows - 4)


def ready(settings: WorkerSettings, models: Models, facts: Facts) -> Ready:
    """Return what the target can do."""
    config = models.own.config()
    blocks = min(f.blocks for f in facts)
    return Ready(
        dtype=facts[0].dtype,
        step_seconds={},
        sessions=settings.max_running,
        context=min(f.context for f in facts),
        kv_bytes=blocks * BLOCK * config.kv_bytes_per_token,
        prefix_cache=settings.prefix_cache,
    )


def warm_up_leader(vocabulary: int) -> None:
    """Compile what a leader runs, by a request whose draft sends arbitrary nodes and whose stages
    choose one token; only compiled code remains."""
    leader = Leader(BlockPool(4, 128), SegmentPlan(4, 2, 16), LeaderLimits(1, tree_blocks=1))
    submit = Submit(
        1, PROMPT, SamplingParams(), 4 * TURNS, (), True, 0.0, prediction=np.repeat(PROMPT, 2)
    )
    sequence = leader.submit(submit)
    mirror = sequence.mirror
    text = TextSearch.of(sequence)
    text.read_on()
    mirror.attach()
    allowed = np.ones(vocabulary, np.bool_)
    for turn in range(TURNS):
        text.search(ALL_SOURCES, GRANTED, TURNS)
        while leader.fill():
            pass
        growth = arbitrary_growth(mirror.root_position, 3 * turn + 1).growth
        mirror.receive(growth, GRANTED, allowed)
        segments = [record for record in leader.outgoing if isinstance(record, Segment)]
        leader.outgoing.clear()
        for segment in segments:
            leader.receive(answer(segment))
    sequence.drop_session()


def answer(segment: Segment) -> Results:
    """Return the results of stages that choose one token everywhere."""
    rows = segment.rows[segment.sample]
    count = len(rows)
    nothing = np.zeros((count, 0), np.int32)
    nan = np.full(count, np.nan, np.float32)
    tokens = np.full(count, TOKEN, np.int32)
    return Results(segment.number, rows, tokens, nan, nothing, nothing.astype(np.float32))
