"""An engine from start to end: built for its role, announced as ready, run, ended.

Leaves the way each kind of engine is put together to `build_target`, `build_draft` and
`build_colocated`.
"""

import dataclasses
import logging
import socket
from pathlib import Path
from typing import Any

from outrider.contract.settings import LinkTransport, Role, WorkerSettings
from outrider.worker.engine.loop import Engine, Transport
from outrider.worker.engine.socket_channel import Channel, ChannelClosed
from outrider.worker.engine.transport import TargetTransport
from outrider.worker.errors import DeviceLost, GroupLost, LinkBroken, ModelError, PairRefused
from outrider.worker.host.process import keep_to
from outrider.worker.launch.arrangement import settle
from outrider.worker.launch.build_colocated import build_colocated
from outrider.worker.launch.build_draft import build_draft
from outrider.worker.launch.build_pipelined import build_pipelined
from outrider.worker.launch.build_target import build_target
from outrider.worker.launch.loaded import LoadedModel
from outrider.worker.launch.prepare import Models
from outrider.worker.link import distributed
from outrider.worker.messages import Failed, Ready
from outrider.worker.parallel.placement import engines_processors
from outrider.worker.pipeline.loop import PipelinedEngine

logger = logging.getLogger(__name__)


def run_target(settings: WorkerSettings, models_file: Path, end: socket.socket) -> int:
    """Run a target's engine process until its server is gone; return the exit status."""
    transport = TargetTransport(Channel(end))  # its thread may use any processor
    keep_to(engines_processors(settings))
    try:
        return run_engine(settings, Models.from_json(models_file.read_text()), transport)
    finally:
        transport.close()


def run_engine(settings: WorkerSettings, models: Models, transport: Transport) -> int:
    """Build an engine and run it until its server is gone; return the exit status."""
    try:
        if settings.await_arrangement:
            settings = settle(settings, models, transport)
        engine = build_engine(settings, models, transport)
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


def require_distributed() -> None:
    """Load what links of a target go through, before any is up; raise `ModelError`."""
    try:
        distributed.require()
    except LinkBroken as error:
        link = LinkTransport.DISTRIBUTED
        raise ModelError(f"settings.link: {link} is not possible: {error}") from None


def with_draft(
    settings: WorkerSettings, models: Models, transport: Transport
) -> tuple[Engine[Any, Any], LoadedModel, str]:
    """Build the engine of a target and its draft, or of the target alone where the two cannot work
    together: a pod never ends for its draft. Returns also why, else nothing."""
    try:
        return *build_colocated(settings, models, transport), ""
    except PairRefused as error:
        logger.warning("the draft is not used: %s", error)
        alone = dataclasses.replace(settings, colocated=None)
        return *build_target(alone, models, transport), str(error)


def build_engine(
    settings: WorkerSettings, models: Models, transport: Transport
) -> Engine[Any, Any] | PipelinedEngine:
    """Build the engine of this worker's role and announce it as ready."""
    if settings.link is LinkTransport.DISTRIBUTED and settings.role is Role.TARGET:
        require_distributed()
    if settings.link_dir is not None:
        from outrider.worker.link import shared_memory  # noqa: F401  # compiles, before any link is up
    if settings.pipeline.stages > 1:
        assert isinstance(transport, TargetTransport)
        pipelined, announcement = build_pipelined(settings, models, transport)
        transport.send(announcement)
        return pipelined
    refused = ""
    if settings.role is Role.DRAFT:
        engine, loaded = build_draft(settings, models, transport)
    elif settings.colocated is not None:
        engine, loaded, refused = with_draft(settings, models, transport)
    else:
        engine, loaded = build_target(settings, models, transport)
    loaded.limit_passes()
    if settings.role is Role.TARGET:  # a draft's links start threads later, from this one
        loaded.keep_threads_apart()
    transport.send(
        Ready(
            dtype=str(loaded.path),
            step_seconds=loaded.costs.table(),
            path_seconds=dict(loaded.path_seconds),
            longest_pass=loaded.longest_pass,
            sessions=settings.max_running,
            context=loaded.context,
            kv_bytes=loaded.kv_bytes,
            prefix_cache=settings.prefix_cache,
            refused_draft=refused,
        )
    )
    return engine
