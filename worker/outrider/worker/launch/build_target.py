"""A target's engine: model, runner and scheduler, put together.

Its drafts are other processes; `build_colocated` is for one in the same process.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from outrider.contract.settings import Role, WorkerSettings
from outrider.worker.compiled_loop.run import RootPlanner
from outrider.worker.compiled_loop.runner import CompiledTarget
from outrider.worker.engine.loop import Engine, Runner, Transport
from outrider.worker.engine.pass_timeline import PassTimeline
from outrider.worker.engine.runner import TargetRunner
from outrider.worker.launch.load import load_model
from outrider.worker.launch.loaded import LoadedModel
from outrider.worker.launch.prepare import Models
from outrider.worker.launch.warmup import discard, plain_host_seconds, warm_up_target
from outrider.worker.link.wire import FromTarget
from outrider.worker.messages import ToPeer
from outrider.worker.model.llama import Llama
from outrider.worker.parallel.leader import LeadingModel
from outrider.worker.parallel.runners import ParallelTargetRunner
from outrider.worker.sampling.grammar import Grammars
from outrider.worker.sampling.grammar_tokenizer import tokenizer_of
from outrider.worker.sampling.logits_processor import LogitsProcessors
from outrider.worker.target.scheduler import TargetScheduler
from outrider.worker.target.selection import RowSelector
from outrider.worker.target.sessions import TargetSessions
from outrider.worker.target.spans import TargetSpans

if TYPE_CHECKING:
    from outrider.worker.gpu.lending import Lending


def build_target(
    settings: WorkerSettings, models: Models, transport: Transport
) -> tuple[Engine[Any, Any], LoadedModel]:
    """Build the engine of a target whose drafts are other processes; return it and its model."""
    loaded = load_target(settings, models)
    runner = target_runner(settings, loaded, models.vocabulary, transport.arrived)
    host_seconds = warm_up(settings, loaded, runner, models.vocabulary)
    outbox: list[Any] = []

    def send(link: int, message: FromTarget) -> None:
        to_peer = ToPeer(link, (message,))
        if not transport.direct.send(to_peer):
            outbox.append(to_peer)

    processors = logits_processors(models)
    scheduler = target_scheduler(settings, loaded, processors, send, outbox, host_seconds)
    timeline = PassTimeline(TargetSpans(scheduler.stats))
    return Engine(scheduler, runner, transport, timeline), loaded


def load_target(
    settings: WorkerSettings,
    models: Models,
    lendable: int = 0,
    lending: "Lending | None" = None,
) -> LoadedModel:
    """Load a target's weights, with room for verify rows behind each sequence; `lendable` and
    `lending` as `load_model` has them."""
    return load_model(settings, Role.TARGET, settings.model.dtype, models.own, lendable, lending)


def target_runner(
    settings: WorkerSettings, loaded: LoadedModel, vocabulary: int, arrived: NDArray[np.int64]
) -> TargetRunner | CompiledTarget:
    """Make the runner of a target: on one CPU rank, on several, or on GPUs.

    `arrived` [1]: not 0 while there may be a message for the engine.
    """
    if loaded.on_gpu:
        from outrider.worker.gpu.capture import ready_runner  # loads torch and triton

        return ready_runner(loaded.model, vocabulary, settings.prefill)
    if isinstance(loaded.model, LeadingModel):
        return ParallelTargetRunner(loaded.model, vocabulary)
    runner = TargetRunner(loaded.model, vocabulary)
    if isinstance(loaded.model, Llama):
        return CompiledTarget(runner, loaded.model, vocabulary, arrived)
    return runner


def warm_up(
    settings: WorkerSettings, loaded: LoadedModel, runner: Runner[Any, Any], vocabulary: int
) -> float:
    """Compile all that a request needs; return the host time of a plain step."""
    scheduler = target_scheduler(settings, loaded, LogitsProcessors(vocabulary), discard, [])
    warm_up_target(scheduler, runner, vocabulary)
    return plain_host_seconds(scheduler, runner)


def logits_processors(models: Models) -> LogitsProcessors:
    """Make the factory of logits processors, grammars of response formats included."""
    own, vocabulary = models.own, models.vocabulary
    grammars = Grammars(lambda: tokenizer_of(own, vocabulary, own.config().end_ids))
    return LogitsProcessors(vocabulary, grammars)


def target_scheduler(
    settings: WorkerSettings,
    loaded: LoadedModel,
    processors: LogitsProcessors,
    send: Callable[[int, FromTarget], None],
    outbox: list[Any],
    host_seconds: float = 0.0,
) -> TargetScheduler:
    """Make a target's scheduler, before any request; `send` takes messages for its drafts."""
    row_selector = RowSelector.start(
        loaded.costs, settings.policy, loaded.model.row_capacity, host_seconds
    )
    scheduler = TargetScheduler(
        loaded.kv_cache,
        loaded.context,
        settings.max_running,
        TargetSessions(send, row_selector),
        outbox,
        processors,
        settings.prefill,
    )
    if isinstance(loaded.model, Llama):
        scheduler.runs = RootPlanner(scheduler)
    return scheduler
