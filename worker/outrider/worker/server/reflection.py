"""gRPC reflection under the names of both of its versions, v1 and v1alpha."""

from collections.abc import Sequence

import grpc
from grpc_reflection.v1alpha import reflection, reflection_pb2

V1 = "grpc.reflection.v1.ServerReflection"


def register_reflection(server: grpc.aio.Server, services: Sequence[str]) -> None:
    """Serve reflection that lists `services` and itself.

    grpcio-reflection has v1alpha alone, whose messages v1 took over unchanged.
    """
    servicer = reflection.aio.ReflectionServicer((*services, reflection.SERVICE_NAME))
    answer = grpc.stream_stream_rpc_method_handler(
        servicer.ServerReflectionInfo,
        request_deserializer=reflection_pb2.ServerReflectionRequest.FromString,
        response_serializer=reflection_pb2.ServerReflectionResponse.SerializeToString,
    )
    server.add_generic_rpc_handlers(
        [
            grpc.method_handlers_generic_handler(name, {"ServerReflectionInfo": answer})
            for name in (V1, reflection.SERVICE_NAME)
        ]
    )
