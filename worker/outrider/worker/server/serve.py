"""`serve`: open the ports of a worker, build and start it, run it to its end.

Leaves the parts to `build` and `worker`, and starting again to the supervisor of the process.
"""

import asyncio
import logging
import os
import sys

import grpc

from outrider.contract.process import EXIT_ADDRESS_IN_USE
from outrider.contract.settings import Role, WorkerSettings
from outrider.worker.api.auth import ApiKeys, KeyInterceptor
from outrider.worker.api.http.server import listen
from outrider.worker.api.server_certificate import ServerCertificate
from outrider.worker.errors import Stopping
from outrider.worker.host.descriptors import AcceptErrors, take_all_descriptors
from outrider.worker.host.peers import add_port as add_peer_port
from outrider.worker.host.peers import beyond_loopback
from outrider.worker.host.scratch import scratch_folder
from outrider.worker.host.threads import started
from outrider.worker.launch.prepare import DEFAULT_CONTEXT
from outrider.worker.link import service as drafter_service
from outrider.worker.link.client import MAX_HELLO_BYTES
from outrider.worker.link.rate_limit import max_bytes_of_target
from outrider.worker.server.build import Ports, build_worker
from outrider.worker.server.call_errors import CallErrors
from outrider.worker.server.control_service import control_server
from outrider.worker.server.shutdown import Shutdown

logger = logging.getLogger(__name__)

MAX_MESSAGE_BYTES = 16 << 20
"""Most bytes of one message to a target: a prompt."""
THREADS = min(32, (os.cpu_count() or 1) + 4)
"""Threads that tokenize prompts and do what else would block; as many as asyncio has by default."""
SWITCH_SECONDS = 0.0005
"""For which a thread may keep the interpreter while the event loop wants it. An answer of the loop
wants it several times: with Python's own 0.005 `/healthz` took 26 ms beside bodies that are looked
through on a thread, 4 in calm."""
OTHER_CALLS = 256
"""Most calls at once beside those that generate: health, tokens, links. gRPC refuses more, and has
those of one connection wait."""


async def serve(settings: WorkerSettings, parent: int | None) -> int:
    """Run one worker until a shutdown is requested; return the exit status.

    `parent` is a file descriptor that reads end-of-file when the supervising process is gone.
    """
    largest = MAX_MESSAGE_BYTES
    if settings.role is Role.DRAFT:  # whose model is not known yet
        context = settings.max_context or DEFAULT_CONTEXT
        largest = max(MAX_HELLO_BYTES, max_bytes_of_target(context))
    calls = settings.max_running + settings.max_waiting + OTHER_CALLS
    options = (
        ("grpc.so_reuseport", 0),
        ("grpc.max_concurrent_streams", calls),
        ("grpc.max_receive_message_length", largest),
        *drafter_service.OPTIONS,
        *renewal(settings),
    )
    take_all_descriptors()
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(AcceptErrors())
    loop.set_default_executor(started(THREADS, "tokenizer"))
    if settings.role is Role.TARGET:  # a draft's engine is a thread here, and not to be disturbed
        sys.setswitchinterval(SWITCH_SECONDS)
    keys = ApiKeys(settings.api_keys_file) if settings.api_keys_file else None
    guards = (KeyInterceptor(keys),) if keys else ()
    server = grpc.aio.server(
        interceptors=(*guards, CallErrors()),
        options=options,
        maximum_concurrent_rpcs=calls,
    )
    try:
        port = add_port(server, settings)
        address = settings.control_listen
        control = control_server(settings, address) if address else None
        listener = listen(settings.http_listen) if settings.http_listen else None
    except (RuntimeError, OSError) as error:
        logger.error("cannot listen on %s: %s", settings.addresses, error)
        return EXIT_ADDRESS_IN_USE
    stop = Shutdown.install(parent, settings.grace_seconds)
    with scratch_folder() as scratch:
        try:
            ports = Ports(server, control, listener, keys)
            worker = await build_worker(settings, scratch, ports, stop)
        except Stopping:
            return 0
        await worker.start()
        if listener is not None:
            logger.info("HTTP listens on port %d", listener.getsockname()[1])
        try:
            logger.info("%s listens on port %d", settings.role, port)
            return await worker.run(stop)
        finally:
            await worker.close()


def renewal(settings: WorkerSettings) -> tuple[tuple[str, int], ...]:
    """Return the options that have connections made anew, all within a lame-duck time.

    A Service leads connections, not calls: a client that keeps its own would be refused at the end,
    though other targets serve. A server that goes away at that moment fails calls that are on their
    way (41 of 21,000 in 15 ends); one that lets connections grow old fails none (of 38,000).
    """
    if not settings.lame_duck_seconds:
        return ()
    return (("grpc.max_connection_age_ms", 1000 * settings.lame_duck_seconds // 2),)


def add_port(server: grpc.aio.Server, settings: WorkerSettings) -> int:
    """Add the port of the gRPC server and return it; raise `RuntimeError` or `SettingsError`.

    A draft's callers are its peers, a target's are clients.
    """
    if settings.role is Role.DRAFT:
        peers = beyond_loopback(settings.peers, settings.listen)
        return add_peer_port(server, settings.listen, peers)
    certificate = ServerCertificate.of(settings)
    if certificate is None:
        return server.add_insecure_port(settings.listen)
    return server.add_secure_port(settings.listen, certificate.credentials())
