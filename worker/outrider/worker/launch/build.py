"""Starts an engine: loads the weights, measures them, builds the role's loop.

Puts parts together and nothing else; what they do is theirs.
"""

import dataclasses
import logging
import socket
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from outrider.contract.settings import MAX_NODE_ROWS, Dtype, Role, WorkerSettings
from outrider.worker.draft.batch import MAX_WIDTH, DraftBatch
from outrider.worker.draft.scheduler import DraftScheduler
from outrider.worker.draft.send_buffer import SendBuffer
from outrider.worker.draft.sessions import MAX_NODES
from outrider.worker.engine.loop import Engine, Runner, Transport
from outrider.worker.engine.runner import DraftRunner, TargetRunner, TopChildren
from outrider.worker.engine.socket_channel import Channel, ChannelClosed
from outrider.worker.engine.transport import TargetTransport
from outrider.worker.errors import DeviceLost, GroupLost, ModelError, PairRefused
from outrider.worker.host.processors import keep_to
from outrider.worker.launch.load import load_model
from outrider.worker.launch.loaded import LoadedModel
from outrider.worker.launch.prepare import Models
from outrider.worker.launch.serial import LoopbackLink, SerialScheduler
from outrider.worker.launch.warmup import plain_host_seconds, warm_up_draft, warm_up_target
from outrider.worker.link.handshake import agreed_between
from outrider.worker.link.wire import FromDraft, FromTarget
from outrider.worker.messages import Failed, Ready, ToPeer
from outrider.worker.model.prepared import PreparedModel
from outrider.worker.parallel.draft_runner import ParallelDraftRunner
from outrider.worker.parallel.leader import Leader, LeadingModel
from outrider.worker.parallel.placement import leaders_processors
from outrider.worker.parallel.target_runner import ParallelTargetRunner
from outrider.worker.sampling.grammar import Grammars
from outrider.worker.sampling.grammar_tokenizer import tokenizer_of
from outrider.worker.sampling.logits_processor import LogitsProcessors
from outrider.worker.target.draft_sessions import TargetSessions
from outrider.worker.target.scheduler import TargetScheduler
from outrider.worker.target.selection import RowSelector

logger = logging.getLogger(__name__)


DRAFT_THREADS = 1
"""Of a draft inside its target: a small model's layers are too short to share (Zen 5, the demo's
draft: 0.55 ms a pass with one thread, 0.65 with two)."""


def run_target(settings: WorkerSettings, models_file: Path, end: socket.socket) -> int:
    """An engine process, until its server process is gone; returns the exit status."""
    transport = TargetTransport(
        Channel(end)
    )  # before the engine keeps to its processors: it is no part
    keep_to(leaders_processors(settings))
    try:
        return run_engine(settings, Models.from_json(models_file.read_text()), transport)
    finally:
        transport.close()


def run_engine(settings: WorkerSettings, models: Models, transport: Transport) -> int:
    """Runs until the server is gone; returns the exit status."""
    try:
        engine = build(settings, models, transport)
    except (ModelError, PairRefused) as error:
        transport.send(Failed(str(error)))
        return 1
    except GroupLost as error:
        logger.error("%s; this group of ranks never was complete", error)
        return 1
    except ChannelClosed:
        return 0
    try:
        engine.run()
    except GroupLost as error:
        logger.error("%s; this group of ranks ends", error)
        return 1
    except DeviceLost as error:
        logger.error("%s; this engine ends", error)
        return 1
    return 0


def build(settings: WorkerSettings, models: Models, transport: Transport) -> Engine[Any, Any]:
    """The loop of this worker's role, announced as ready."""
    if settings.role is Role.DRAFT:
        engine, loaded = build_draft(settings, models, transport)
    elif settings.colocated is not None:
        engine, loaded = build_colocated(settings, models, transport)
    else:
        engine, loaded = build_target(settings, models, transport)
    loaded.warmed_up()
    transport.send(
        Ready(
            dtype=str(loaded.path),
            step_seconds=loaded.costs.table(),
            sessions=settings.max_running,
            context=loaded.context,
            kv_bytes=loaded.kv_bytes,
            prefix_cache=settings.prefix_cache,
        )
    )
    return engine


def build_target(
    settings: WorkerSettings, models: Models, transport: Transport
) -> tuple[Engine[Any, Any], LoadedModel]:
    """A target whose drafts are other processes."""
    loaded = load_target(settings, models)
    outbox: list[Any] = []

    def send(link: int, message: FromTarget) -> None:
        outbox.append(ToPeer(link, (message,)))

    runner = target_runner(loaded, models.vocabulary)
    host = warmed_up(settings, loaded, runner, models.vocabulary)
    logits_processors = LogitsProcessors(models.vocabulary, grammars(models))
    scheduler = target_scheduler(settings, loaded, logits_processors, send, outbox, host)
    return Engine(scheduler, runner, transport), loaded


def build_draft(
    settings: WorkerSettings, models: Models, transport: Transport
) -> tuple[Engine[Any, Any], LoadedModel]:
    """A draft that serves targets in other processes."""
    loaded = load_draft(settings, settings.model.dtype, models.own)
    outbox: list[Any] = []

    def send(link: int, messages: Sequence[FromDraft]) -> None:
        outbox.append(ToPeer(link, messages))

    runner = draft_runner(loaded, models)
    warm_up_draft(draft_scheduler(settings, loaded, unsent), runner, models.vocabulary)
    return Engine(draft_scheduler(settings, loaded, send, outbox), runner, transport), loaded


def build_colocated(
    settings: WorkerSettings, models: Models, transport: Transport
) -> tuple[Engine[Any, Any], LoadedModel]:
    """A target with its draft in the same process."""
    assert settings.colocated is not None
    assert models.colocated is not None
    loaded = load_target(settings, models)
    alone = dataclasses.replace(settings, threads=DRAFT_THREADS, tensor_parallel=1)
    draft = load_draft(alone, settings.colocated.dtype, models.colocated)
    size = models.vocabulary
    allowed = agreed_between(models.own, models.colocated)[:size]
    runner, guesser = target_runner(loaded, size), draft_runner(draft, models, serial=True)
    host = warmed_up(settings, loaded, runner, size)
    warm_up_draft(draft_scheduler(settings, draft, unsent), guesser, size)
    link = LoopbackLink()
    outbox: list[Any] = []
    turns = SerialScheduler(
        target_scheduler(
            settings,
            loaded,
            LogitsProcessors(size, grammars(models)),
            link.send_to_draft,
            outbox,
            host,
        ),
        runner,
        draft_scheduler(settings, draft, link.send_to_target, outbox),
        guesser,
        link,
        allowed,
    )
    return Engine(turns, turns, transport), loaded


def warmed_up(
    settings: WorkerSettings, loaded: LoadedModel, runner: TargetRunner, vocabulary: int
) -> float:
    """Compiles all that a request needs; returns what a plain step takes beside its pass."""
    scheduler = target_scheduler(settings, loaded, LogitsProcessors(vocabulary), unsent, [])
    warm_up_target(scheduler, runner, vocabulary)
    return plain_host_seconds(scheduler, runner)


def unsent(link: int, message: object) -> None:
    """Where a rehearsal's messages go."""


def load_target(settings: WorkerSettings, models: Models) -> LoadedModel:
    """A target's weights, with room for verify rows behind each sequence."""
    return load_model(settings, settings.model.dtype, models.own, MAX_NODE_ROWS + 1)


def load_draft(settings: WorkerSettings, dtype: Dtype, model: PreparedModel) -> LoadedModel:
    """A draft's weights, with room for its trees."""
    return load_model(settings, dtype, model, MAX_NODES + MAX_WIDTH)


def target_runner(loaded: LoadedModel, vocabulary: int) -> TargetRunner:
    """A target's model, alone, over its ranks or on a GPU, with its dice."""
    if loaded.on_gpu:
        from outrider.worker.gpu.capture import ready_runner  # loads torch and triton

        return ready_runner(loaded.model, vocabulary)
    if isinstance(loaded.model, LeadingModel):
        return ParallelTargetRunner(loaded.model, vocabulary)
    return TargetRunner(loaded.model, vocabulary)


def draft_runner(
    loaded: LoadedModel, models: Models, *, serial: bool = False
) -> Runner[DraftBatch, list[TopChildren]]:
    """A draft's model, alone or over its ranks, with the dice of a vocabulary that both know.

    `serial`: its passes keep a target waiting, so none is run that was not asked for. Ranks with a
    GPU each gather their logits, and children are ranked on the host.
    """
    if loaded.on_gpu and not isinstance(loaded.model, Leader):
        from outrider.worker.gpu.chained_passes import CHAINED  # loads torch and triton
        from outrider.worker.gpu.draft_runner import runner_of

        return runner_of(loaded.model, models.vocabulary, 1 if serial else CHAINED)
    config = loaded.model.config
    given = config.output_ids, models.vocabulary, config.output_share
    if isinstance(loaded.model, LeadingModel):
        return ParallelDraftRunner(loaded.model, *given)
    return DraftRunner(loaded.model, *given)


def grammars(models: Models) -> Grammars:
    """Compiles the grammars of requests."""
    own = models.own
    return Grammars(lambda: tokenizer_of(own, models.vocabulary, own.config().end_ids))


def target_scheduler(
    settings: WorkerSettings,
    loaded: LoadedModel,
    logits_processors: LogitsProcessors,
    send: Callable[[int, FromTarget], None],
    outbox: list[Any],
    host_seconds: float = 0.0,
) -> TargetScheduler:
    """A target's decisions, before any request."""
    most = loaded.model.row_capacity
    row_selector = RowSelector.start(loaded.costs, settings.policy, most, time.monotonic())
    row_selector.host_seconds = host_seconds
    sessions = TargetSessions(send, row_selector)
    return TargetScheduler(
        loaded.kv_cache,
        loaded.context,
        settings.max_running,
        sessions,
        row_selector,
        outbox,
        logits_processors,
    )


def draft_scheduler(
    settings: WorkerSettings,
    loaded: LoadedModel,
    send: Callable[[int, Sequence[FromDraft]], None],
    outbox: list[Any] | None = None,
) -> DraftScheduler:
    """A draft's decisions, before any session."""
    return DraftScheduler(
        loaded.kv_cache,
        loaded.context,
        settings.max_running,
        loaded.model.config.vocab,
        SendBuffer(send),
        [] if outbox is None else outbox,
    )
