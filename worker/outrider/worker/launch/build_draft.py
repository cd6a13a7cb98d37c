"""A draft's engine: model, runner and scheduler, put together.

Its targets are other processes; `build_colocated` is for one in the same process.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from outrider.contract.settings import Dtype, Role, WorkerSettings
from outrider.worker.checkpoints.prepared import PreparedModel
from outrider.worker.draft.batch import DraftBatch
from outrider.worker.draft.scheduler import DraftScheduler
from outrider.worker.draft.send_buffer import SendBuffer
from outrider.worker.draft.spans import draft_spans
from outrider.worker.engine.loop import Engine, Runner, Transport
from outrider.worker.engine.pass_timeline import PassTimeline
from outrider.worker.engine.runner import DraftRunner, TopChildren
from outrider.worker.launch.load import load_model
from outrider.worker.launch.loaded import LoadedModel
from outrider.worker.launch.prepare import Models
from outrider.worker.launch.warmup import discard, warm_up_draft
from outrider.worker.link.wire import FromDraft
from outrider.worker.messages import ToPeer
from outrider.worker.parallel.leader import LeadingModel, RankLeader
from outrider.worker.parallel.runners import ParallelDraftRunner

if TYPE_CHECKING:
    from outrider.worker.gpu.lending import Lending


def build_draft(
    settings: WorkerSettings, models: Models, transport: Transport
) -> tuple[Engine[Any, Any], LoadedModel]:
    """Build the engine of a draft that serves other processes; return it and its model."""
    loaded = load_draft(settings, settings.model.dtype, models.own)
    runner = draft_runner(loaded, models.vocabulary)
    warm_up(settings, loaded, runner, models.vocabulary)
    outbox: list[Any] = []

    def send(link: int, messages: Sequence[FromDraft]) -> None:
        to_peer = ToPeer(link, messages)
        if not transport.direct.send(to_peer):
            outbox.append(to_peer)

    send_buffer = SendBuffer(send, is_direct=transport.direct.__contains__)
    scheduler = draft_scheduler(settings, loaded, send_buffer, outbox)
    return Engine(scheduler, runner, transport, PassTimeline(draft_spans)), loaded


def load_draft(
    settings: WorkerSettings,
    dtype: Dtype,
    model: PreparedModel,
    lending: "Lending | None" = None,
) -> LoadedModel:
    """Load a draft's weights, with room for its trees; `lending` as `load_model` has it."""
    return load_model(settings, Role.DRAFT, dtype, model, lending=lending)


def draft_runner(
    loaded: LoadedModel, vocabulary: int, *, colocated: bool = False
) -> Runner[DraftBatch, list[TopChildren]]:
    """Make the runner of a draft of so many tokens: on one CPU rank, on several, or on GPUs.

    `colocated`: its passes keep a target waiting, so no pass is chained to the one that was
    scheduled. Ranks with a GPU each gather their logits, and children are picked on the host.
    """
    if loaded.on_gpu and not isinstance(loaded.model, RankLeader):
        from outrider.worker.gpu.capture import ready_draft_runner  # loads torch and triton
        from outrider.worker.gpu.chained_passes import CHAINED

        return ready_draft_runner(loaded.model, vocabulary, 1 if colocated else CHAINED)
    config = loaded.model.config
    outputs = config.output_ids, vocabulary, config.output_share
    if isinstance(loaded.model, LeadingModel):
        return ParallelDraftRunner(loaded.model, *outputs)
    return DraftRunner(loaded.model, *outputs)


def warm_up(
    settings: WorkerSettings,
    loaded: LoadedModel,
    runner: Runner[DraftBatch, list[TopChildren]],
    vocabulary: int,
) -> None:
    """Compile all that a session needs."""
    scheduler = draft_scheduler(settings, loaded, SendBuffer(discard), [])
    warm_up_draft(scheduler, runner, vocabulary)


def draft_scheduler(
    settings: WorkerSettings, loaded: LoadedModel, send_buffer: SendBuffer, outbox: list[Any]
) -> DraftScheduler:
    """Make a draft's scheduler, before any session; `send_buffer` takes messages for targets."""
    return DraftScheduler(
        loaded.kv_cache,
        loaded.context,
        settings.max_running,
        loaded.model.config.vocab,
        send_buffer,
        outbox,
    )
