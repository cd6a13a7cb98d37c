"""A collector for tests: takes OTLP over gRPC on loopback and keeps every span.

with sink() as collector:
    spans = collector.until(lambda spans: len(spans) == 4)
"""

import contextlib
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import grpc
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2 as pb
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2_grpc
from opentelemetry.proto.trace.v1.trace_pb2 import Span

SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Seen:
    """One span, and the service that sent it."""

    service: str
    span: Span

    @property
    def attributes(self) -> dict[str, Any]:
        """By name; numbers and words as they are."""
        return {a.key: plain(a.value) for a in self.span.attributes}


def plain(value: Any) -> Any:
    """An OTLP value in Python's terms."""
    kind = value.WhichOneof("value")
    found = getattr(value, kind)
    return [plain(one) for one in found.values] if kind == "array_value" else found


@dataclass
class Collector(trace_service_pb2_grpc.TraceServiceServicer):
    """What has come."""

    port: int = 0
    _seen: list[Seen] = field(default_factory=list)
    _changed: threading.Condition = field(default_factory=threading.Condition)

    def Export(self, request: pb.ExportTraceServiceRequest, context: Any) -> Any:
        """Keeps the spans of one batch."""
        with self._changed:
            for group in request.resource_spans:
                service = {a.key: plain(a.value) for a in group.resource.attributes}["service.name"]
                for scope in group.scope_spans:
                    self._seen.extend(Seen(service, span) for span in scope.spans)
            self._changed.notify_all()
        return pb.ExportTraceServiceResponse()

    @property
    def endpoint(self) -> str:
        """As OTEL_EXPORTER_OTLP_ENDPOINT."""
        return f"http://127.0.0.1:{self.port}"

    def trace(self, trace_id: bytes) -> dict[str, Seen]:
        """The spans of one trace by name."""
        return {one.span.name: one for one in self._seen if one.span.trace_id == trace_id}

    def all(self, trace_id: bytes) -> list[Seen]:
        """All spans of one trace."""
        with self._changed:
            return [one for one in self._seen if one.span.trace_id == trace_id]

    def until(self, trace_id: bytes, holds: Callable[[dict[str, Seen]], bool]) -> dict[str, Seen]:
        """The spans of one trace, once they are as wanted."""
        with self._changed:
            come = self._changed.wait_for(lambda: holds(self.trace(trace_id)), SECONDS)
        assert come, f"only {sorted(self.trace(trace_id))} came"
        return self.trace(trace_id)


@contextlib.contextmanager
def sink() -> Iterator[Collector]:
    """A collector that listens while the block runs."""
    server = grpc.server(ThreadPoolExecutor(2))
    collector = Collector()
    add = trace_service_pb2_grpc.add_TraceServiceServicer_to_server
    add(collector, server)  # type: ignore[no-untyped-call]
    collector.port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        yield collector
    finally:
        server.stop(None).wait()
