"""Where spans go: in batches, on a thread, to an OTLP collector over gRPC.

A collector that is slow or gone costs spans, never a request. Leaves what a span says to `traces`.
"""

import threading

from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor

from outrider.contract import traces as names
from outrider.contract.settings import Role

SERVICES = {Role.TARGET: names.TARGET_SERVICE, Role.DRAFT: names.DRAFT_SERVICE}
FLUSH_SECONDS = 2.0
"""Longest that a worker which stops waits for its collector."""


def provider(role: Role, instance: str) -> TracerProvider:
    """A provider of its own, not the process's global one; raises `ValueError`."""
    own = {"service.name": SERVICES[role], "service.instance.id": instance}
    resource = Resource.create(own).merge(OTELResourceDetector().detect())
    made = TracerProvider(resource=resource, shutdown_on_exit=False)
    made.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    return made


def flush(provider: TracerProvider) -> None:
    """Sends what has not been sent, within `FLUSH_SECONDS`; the rest is lost."""
    last = threading.Thread(target=provider.shutdown, name="last spans", daemon=True)
    last.start()
    last.join(FLUSH_SECONDS)
