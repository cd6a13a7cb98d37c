"""The engine of a target with its draft in the same process, for `draft.placement: Colocated`.

Both are put together as in processes of their own, with a `SerialScheduler` between them.
"""

from typing import Any

from outrider.contract.settings import WorkerSettings
from outrider.worker.draft.send_buffer import SendBuffer
from outrider.worker.engine.loop import Engine, Transport
from outrider.worker.engine.pass_timeline import PassTimeline
from outrider.worker.launch import build_draft, build_target
from outrider.worker.launch.loaded import LoadedModel
from outrider.worker.launch.prepare import Models
from outrider.worker.launch.serial import LoopbackLink, SerialScheduler, SerialSpans, chunk_rows
from outrider.worker.link.handshake import agreed_between
from outrider.worker.model.llama import Llama


def build_serial(
    settings: WorkerSettings, models: Models, transport: Transport
) -> tuple[Engine[Any, Any], LoadedModel]:
    """Build the engine of a target and its draft; return it and the target's model."""
    assert settings.colocated is not None
    assert models.colocated is not None
    vocabulary = models.vocabulary
    loaded = build_target.load_target(settings, models)
    draft_settings = settings.for_colocated_draft()
    draft = build_draft.load_draft(draft_settings, settings.colocated.dtype, models.colocated)
    if isinstance(loaded.model, Llama) and isinstance(draft.model, Llama):
        loaded.model.share_threads(draft.model)
    target_runner = build_target.target_runner(loaded, vocabulary, transport.arrived)
    draft_runner = build_draft.draft_runner(draft, models, serial=True)
    host_seconds = build_target.warm_up(settings, loaded, target_runner, vocabulary)
    build_draft.warm_up(settings, draft, draft_runner, vocabulary)
    link = LoopbackLink()
    outbox: list[Any] = []
    processors = build_target.logits_processors(models)
    serial = SerialScheduler(
        build_target.target_scheduler(
            settings, loaded, processors, link.send_to_draft, outbox, host_seconds
        ),
        target_runner,
        build_draft.draft_scheduler(
            settings, draft, SendBuffer(link.send_to_target, coalesce=False), outbox
        ),
        draft_runner,
        link,
        agreed_between(models.own, models.colocated)[:vocabulary],
        chunk_rows(draft.costs, loaded.costs),
    )
    timeline = PassTimeline(SerialSpans(serial.target.stats))
    return Engine(serial, serial, transport, timeline), loaded
