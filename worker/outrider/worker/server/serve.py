"""Life of a worker's server process: listen, start the parts, serve until told to stop, close.

Leaves the parts to `server_parts` and every process to whoever supervises.
"""

import logging
import tempfile
from pathlib import Path

import grpc

from outrider.contract.exits import ADDRESS_IN_USE
from outrider.contract.settings import Role, WorkerSettings
from outrider.worker.api.auth import ApiKeys, RequireKey, server_credentials
from outrider.worker.api.http.server import listen
from outrider.worker.launch.prepare import DEFAULT_CONTEXT
from outrider.worker.link.client import MAX_HELLO_BYTES
from outrider.worker.link.rate_limit import largest_of_target
from outrider.worker.server.decode_errors import RefuseUnreadable
from outrider.worker.server.shutdown import Shutdown
from outrider.worker.server.worker import Worker

logger = logging.getLogger(__name__)

MAX_MESSAGE_BYTES = 16 << 20
"""Of one message to a target: a prompt."""


async def serve(settings: WorkerSettings, parent: int | None) -> int:
    """Runs one worker until it is told to stop; returns the exit status.

    `parent` is a file descriptor that reads end-of-file when the supervising process is gone.
    """
    options = (
        ("grpc.so_reuseport", 0),
        ("grpc.max_receive_message_length", largest_bytes(settings)),
    )
    keys = ApiKeys.read(settings.api_keys_file) if settings.api_keys_file else None
    guards = (RequireKey(keys),) if keys else ()
    server = grpc.aio.server(interceptors=(*guards, RefuseUnreadable()), options=options)
    try:
        port = add_port(server, settings)
        listener = listen(settings.http_listen) if settings.http_listen else None
    except (RuntimeError, OSError) as error:
        logger.error("cannot listen on %s: %s", settings.addresses, error)
        return ADDRESS_IN_USE
    stop = Shutdown.install(parent)
    with tempfile.TemporaryDirectory(prefix="outrider-") as scratch:
        worker = await Worker.start(settings, Path(scratch), server)
        if listener is not None:
            worker.serve_http(listener, keys)
        try:
            logger.info("%s listens on port %d", settings.role, port)
            return await worker.run(stop)
        finally:
            await worker.close()


def add_port(server: grpc.aio.Server, settings: WorkerSettings) -> int:
    """The port that the gRPC server takes; raises `RuntimeError` or `SettingsError`."""
    credentials = server_credentials(settings)
    if credentials is None:
        return server.add_insecure_port(settings.listen)
    return server.add_secure_port(settings.listen, credentials)


def largest_bytes(settings: WorkerSettings) -> int:
    """Of one message to a worker, before its model is known."""
    if settings.role is Role.TARGET:
        return MAX_MESSAGE_BYTES
    return max(MAX_HELLO_BYTES, largest_of_target(settings.max_context or DEFAULT_CONTEXT))
