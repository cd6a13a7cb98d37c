"""The `Inference` service of a target over gRPC.

Leaves admission and responses to `inference`, messages to `convert`, and statuses of the errors
that its methods raise to the server.
"""

from collections.abc import AsyncIterator
from typing import Any

import grpc

from outrider.contract.inference import Model
from outrider.protos.v1 import inference_pb2 as pb
from outrider.protos.v1 import inference_pb2_grpc
from outrider.worker.api import convert
from outrider.worker.api.inference import NO_METADATA, Inference

SERVICE = pb.DESCRIPTOR.services_by_name["Inference"].full_name
FOREVER_SECONDS = 1e9
"""A call without a deadline has one in the far future."""
Context = Any  # grpc.aio.ServicerContext, whose stubs want both message types at every use


class InferenceService(inference_pb2_grpc.InferenceServicer):
    """Methods of inference.proto on one target's requests."""

    def __init__(self, inference: Inference) -> None:
        self._inference = inference

    def register(self, server: grpc.aio.Server) -> None:
        """Add the service to a server."""
        inference_pb2_grpc.add_InferenceServicer_to_server(self, server)

    async def Generate(
        self, request: pb.GenerateRequest, context: Context
    ) -> AsyncIterator[pb.GenerateResponse]:
        """Answer one request."""
        inference = self._inference
        remaining = context.time_remaining()
        limited = remaining is not None and remaining < FOREVER_SECONDS
        seconds = None if limited else inference.settings.request_seconds  # gRPC keeps its own
        reads = inference.trace is not None or inference.keys is not None
        metadata = dict(context.invocation_metadata()) if reads else NO_METADATA
        plain = convert.generate_request(request)
        admitted = await inference.admit(plain, seconds, metadata)
        async for response in inference.responses(admitted):
            yield convert.generate_response(response)

    async def Tokenize(self, request: pb.TokenizeRequest, context: Context) -> pb.TokenizeResponse:
        """Return the token ids of a text or a chat."""
        prompt = convert.prompt_of(request, "input")
        return pb.TokenizeResponse(ids=await self._inference.tokenize(request.model, prompt))

    async def Detokenize(
        self, request: pb.DetokenizeRequest, context: Context
    ) -> pb.DetokenizeResponse:
        """Return the text of token ids."""
        return pb.DetokenizeResponse(text=self._inference.detokenize(request.model, request.ids))

    async def ListModels(
        self, request: pb.ListModelsRequest, context: Context
    ) -> pb.ListModelsResponse:
        """Return the one model."""
        model = self._inference.model
        return pb.ListModelsResponse(
            models=[pb.Model(**{name: getattr(model, name) for name in Model.__slots__})]
        )
