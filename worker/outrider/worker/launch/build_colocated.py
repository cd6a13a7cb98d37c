"""The engine of a target with its draft in the same process, for `draft.placement: Colocated`.

Both are put together as in processes of their own, with a `ColocatedScheduler` between them. The
draft's memory may be lent to the target's KV; on a CPU both share one budget.
"""

import dataclasses
from typing import TYPE_CHECKING, Any

from outrider.contract.settings import OffloadKind, PolicySettings, WorkerSettings
from outrider.worker.checkpoints.translation import tokens_for
from outrider.worker.compiled_loop.run import RootPlanner
from outrider.worker.compiled_loop.runner import CompiledDraft, CompiledTarget
from outrider.worker.draft.send_buffer import SendBuffer
from outrider.worker.engine.loop import Engine, Transport
from outrider.worker.engine.pass_timeline import PassTimeline
from outrider.worker.engine.runner import DraftRunner
from outrider.worker.errors import ModelError
from outrider.worker.host.device import torch_device
from outrider.worker.kv.block_pool import blocks_for
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

if TYPE_CHECKING:
    from outrider.worker.gpu.device_pages import DevicePages
    from outrider.worker.gpu.lending import Lending


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
        loaded, draft = load_on_one_device(settings, models)
    if isinstance(loaded.model, Llama) and isinstance(draft.model, Llama):
        loaded.model.share_threads(draft.model)
    target_runner = build_target.target_runner(settings, loaded, vocabulary, transport.arrived)
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


def load_draft(
    settings: WorkerSettings, models: Models, lending: "Lending | None" = None
) -> LoadedModel:
    """Load the draft's weights, with room for its trees."""
    assert settings.colocated is not None
    assert models.colocated is not None
    return build_draft.load_draft(settings, settings.colocated.dtype, models.colocated, lending)


def load_on_one_device(settings: WorkerSettings, models: Models) -> tuple[LoadedModel, LoadedModel]:
    """Load target and draft onto one GPU, by pages that both take from one owner where the draft's
    memory may be lent; raises `ModelError`, also where it has to be and cannot."""
    from outrider.worker.gpu.lending import Lending

    always = settings.offload_draft is OffloadKind.ALWAYS
    pages = pages_to_lend(settings) if always else None
    borrower, lender = (Lending(pages, lends) if pages else None for lends in (False, True))
    target = build_target.load_target(settings, models, lending=borrower)
    draft = load_draft(settings.for_colocated_draft(), models, lender)
    if always:
        check_lent(settings, target, draft)
    return target, draft


def pages_to_lend(settings: WorkerSettings) -> "DevicePages":
    """Return the pages of the GPU that target and draft share; raises `ModelError` where they could
    lend none."""
    from outrider.worker.gpu.device_pages import NoPages, pages_of

    device = torch_device(settings.device)
    assert device is not None
    if settings.tensor_parallel > 1:
        raise no_lending(f"the target has {settings.tensor_parallel} ranks")
    try:
        return pages_of(device)
    except NoPages as error:
        raise no_lending(str(error)) from error


def check_lent(settings: WorkerSettings, target: LoadedModel, draft: LoadedModel) -> None:
    """Raise `ModelError` for a pair that lends nothing although KV may become short."""
    from outrider.worker.gpu.lending import lent_blocks

    kv_cache: Any = target.kv_cache
    enough = settings.max_running * blocks_for(kv_cache.longest)
    if kv_cache.blocks < enough and not lent_blocks(kv_cache, draft.kv_cache, draft.model):
        raise no_lending(
            f"the target's KV grows by {kv_cache.unit_bytes} bytes at once, which is more than the "
            "draft has, or more than twice settings.kv_bytes"
        )


def no_lending(reason: str) -> ModelError:
    """Return the error for a draft that is to lend its memory on a GPU, and cannot."""
    return ModelError(
        f"settings.offload_draft: {OffloadKind.ALWAYS} (draft.offload of a service) is not allowed "
        f"here, {reason}; allowed: {OffloadKind.AUTO}, {OffloadKind.NEVER}"
    )


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
    lendable = weights + draft.kv_bytes if settings.offload_draft is not OffloadKind.NEVER else 0
    return build_target.load_target(settings, models, lendable), draft


def lender_of(target: LoadedModel, draft: LoadedModel) -> MemoryLender | None:
    """Return what lends the draft's memory, if any, and reports it; None on a GPU that lends
    nothing."""
    borrower: Any = target.kv_cache
    lender: Any = draft.model
    if isinstance(borrower, HostKVCache):
        lent = borrower.most - borrower.blocks
    else:
        from outrider.worker.gpu.lending import lent_blocks

        lent = lent_blocks(borrower, draft.kv_cache, lender)
        if not lent:
            return None
    return MemoryLender(
        DraftMemory(borrower.blocks, lent),
        lender.movable,
        borrower,
        draft.kv_cache,
        (target.kv_bytes // borrower.blocks, draft.kv_bytes // draft.kv_cache.blocks),
    )
