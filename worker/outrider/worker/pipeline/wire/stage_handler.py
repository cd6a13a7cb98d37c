"""The service `Stage` of a process from its start: until its layers are loaded, each stream ends
with what the stage does.

So whoever begins a group learns what it waits for, and a port that is taken is noticed at once.
"""

from collections.abc import AsyncIterator, Callable
from typing import Any

import grpc

from outrider.worker.pipeline.wire.outgoing_stream import COLLECT, RUN, SERVICE
from outrider.worker.pipeline.wire.stage_service import StageService


class StageHandler(grpc.GenericRpcHandler):
    """A handler of a gRPC server, before and after `open`."""

    def __init__(self, doing: Callable[[], str]) -> None:
        """`doing`: the stage and what it does, for people; begins with "stage "."""
        self._doing = doing
        refuse: Any = grpc.stream_stream_rpc_method_handler(self._refuse)
        methods = {RUN: refuse, COLLECT: refuse}
        self._handler = grpc.method_handlers_generic_handler(SERVICE, methods)

    def open(self, service: StageService) -> None:
        """Serve streams from now on."""
        self._handler = service.handler()

    def service(self, handler_call_details: Any) -> Any:
        """Return the handler of a call: grpcio asks for each."""
        return self._handler.service(handler_call_details)

    async def _refuse(self, incoming: AsyncIterator[bytes], context: Any) -> None:
        await context.abort(grpc.StatusCode.UNAVAILABLE, self._doing())
