"""The engine of a target with its draft in the same process, for `draft.placement: Colocated`.

Both are put together as in processes of their own, with a `ColocatedScheduler` between them. On a
CPU they share one budget of memory, and the draft's may be lent to the target's KV.
"""

import dataclasses
from typing import Any

from outrider.contract.settings import PolicySettings, WorkerSettings
from outrider.worker.checkpoints.translation import tokens_for
from outrider.worker.compiled_loop.run import RootPlanner
from outrider.worker.compiled_loop.runner import CompiledDraft, CompiledTarget
from outrider.worker.draft.send_buffer import SendBuffer
from outrider.worker.engine.loop import Engine, Transport
from outrider.worker.engine.pass_timeline import PassTimeline
from outrider.worker.engine.runner import DraftRunner
from outrider.worker.host.device import torch_device
from outrider.worker.kv.kv_cache import HostKVCache
from outrider.worker.launch import build_draft, build_target
from outrider.worker.launch.colocated import (
    LINK,
    ColocatedScheduler,
    ColocatedSpans,
    LoopbackLink,
)
from outrider.worker.launch.loaded import LoadedModel
from outrider.worker.launch.memory_budget import SharedMemory
from outrider.worker.launch.memory_lender import MemoryLender
from outrider.worker.launch.prepare import Models
from outrider.worker.launch.warm_up_roots import warm_up_roots
from outrider.worker.model.llama import Llama
from outrider.worker.speculation.draft_memory import DraftMemory


def build_colocated(
    settings: WorkerSettings, models: Models, transport: Transport
) -> tuple[Engine[Any, Any], LoadedModel]:
    """Build the engine of a target and its draft; return it and the target's model."""
    assert settings.colocated is not None
    assert models.colocated is not None
    vocabulary = models.vocabulary
    tokens = tokens_for(models.own, models.colocated, vocabulary)
    translation = tokens.translation
    draft_vocabulary = vocabulary if translation is None else len(translation.target_ids)
    if torch_device(settings.device) is None:
        loaded, draft = load_on_shared_memory(settings, models)
    else:
        loaded = build_target.load_target(settings, models)
        draft = load_draft(settings.for_colocated_draft(), models)
    if isinstance(loaded.model, Llama) and isinstance(draft.model, Llama):
        loaded.model.share_threads(draft.model)
    target_runner = build_target.target_runner(loaded, vocabulary, transport.arrived)
    draft_runner = build_draft.draft_runner(draft, draft_vocabulary, colocated=True)
    host_seconds = build_target.warm_up(settings, loaded, target_runner, vocabulary)
    build_draft.warm_up(settings, draft, draft_runner, draft_vocabulary)

    def schedule(settings: WorkerSettings) -> ColocatedScheduler:
        link, outbox = LoopbackLink(), list[Any]()
        processors = build_target.logits_processors(models)
        colocated = ColocatedScheduler(
            build_target.target_scheduler(
                settings, loaded, processors, link.send_to_draft, outbox, host_seconds
            ),
            target_runner,
            build_draft.draft_scheduler(
                settings, draft, SendBuffer(link.send_to_target, coalesce=False), outbox
            ),
            draft_runner,
            link,
            tokens,
            draft.costs,
        )
        let_roots_run(colocated, target_runner, draft_runner, draft)
        return colocated

    warm_up_roots(schedule(dataclasses.replace(settings, policy=PolicySettings())))
    colocated = schedule(settings)
    colocated.lender = lender_of(loaded, draft)
    timeline = PassTimeline(ColocatedSpans(colocated.target.stats))
    return Engine(colocated, colocated, transport, timeline), loaded


def let_roots_run(
    colocated: ColocatedScheduler, target_runner: Any, draft_runner: Any, draft: LoadedModel
) -> None:
    """Let one sequence's roots go on in compiled code, where both models run on the CPU."""
    colocated.target.runs = None
    if not isinstance(target_runner, CompiledTarget) or not isinstance(draft_runner, DraftRunner):
        return
    assert isinstance(draft.model, Llama)
    target_runner.draft = CompiledDraft(
        draft_runner,
        draft.model,
        colocated.draft.rows,
        colocated.tokens.allowed,
    )
    colocated.runs = RootPlanner(colocated.target, colocated.draft, LINK)


def load_draft(settings: WorkerSettings, models: Models) -> LoadedModel:
    """Load the draft's weights, with room for its trees."""
    assert settings.colocated is not None
    assert models.colocated is not None
    return build_draft.load_draft(settings, settings.colocated.dtype, models.colocated)


def load_on_shared_memory(
    settings: WorkerSettings, models: Models
) -> tuple[LoadedModel, LoadedModel]:
    """Load target and draft in host memory, within the settings' budget if they name one.

    The draft comes first: what its weights take is known once they are packed. Raises `ModelError`.
    """
    inner, budget = settings.for_colocated_draft(), SharedMemory.of(settings, models)
    if budget is not None:
        inner = dataclasses.replace(inner, kv_bytes=budget.draft_kv)
    draft = load_draft(inner, models)
    assert isinstance(draft.model, Llama)
    assert draft.model.movable is not None
    weights = draft.model.movable.bytes
    if budget is not None:
        settings = dataclasses.replace(settings, kv_bytes=budget.target_kv(weights))
    lendable = weights + draft.kv_bytes if settings.offload_draft else 0
    return build_target.load_target(settings, models, lendable), draft


def lender_of(target: LoadedModel, draft: LoadedModel) -> MemoryLender | None:
    """Return what lends the draft's memory, if any, and reports it; None on GPUs."""
    borrower, lender = target.kv_cache, draft.model
    if not isinstance(borrower, HostKVCache) or not isinstance(lender, Llama):
        return None
    assert lender.movable is not None
    return MemoryLender(
        DraftMemory(borrower.blocks, borrower.most - borrower.blocks),
        lender.movable,
        borrower,
        draft.kv_cache,
        (target.kv_bytes // borrower.blocks, draft.kv_bytes // draft.kv_cache.blocks),
    )
