"""Start of traces by the standard environment variables of OpenTelemetry.

Imports nothing of OpenTelemetry unless they ask for traces. Leaves all other variables, such as
those of samplers, headers and batches, to the SDK.
"""

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING

from outrider.contract.settings import Role
from outrider.contract.version import missing_extra

if TYPE_CHECKING:
    from outrider.worker.server.tracing.traces import Traces

logger = logging.getLogger(__name__)

ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
PROTOCOLS = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
"""The first that is set counts."""
DISABLED = "OTEL_SDK_DISABLED"
EXPORTER = "OTEL_TRACES_EXPORTER"
PROTOCOL = "grpc"


def asks_for_traces(environment: Mapping[str, str]) -> bool:
    """True if an endpoint is set and no variable turns traces off."""
    return (
        first(environment, ENDPOINTS) != ""
        and environment.get(DISABLED, "").strip().lower() != "true"
        and environment.get(EXPORTER, "").strip().lower() != "none"
    )


def first(environment: Mapping[str, str], names: tuple[str, ...]) -> str:
    """Return the first of these variables that is set; empty if none is."""
    values = (environment.get(name, "").strip() for name in names)
    return next(filter(None, values), "")


def start_traces(
    environment: Mapping[str, str], role: Role, model: str, instance: str
) -> "Traces | None":
    """Return the traces of a worker if the environment asks for them.

    Logs what prevents them: no worker fails for want of traces.
    """
    if not asks_for_traces(environment):
        return None
    protocol = first(environment, PROTOCOLS)
    if protocol not in ("", PROTOCOL):
        names = " or ".join(PROTOCOLS)
        logger.error("no traces: %s: %r is not spoken; allowed: %r", names, protocol, PROTOCOL)
        return None
    try:
        from outrider.worker.server.tracing.traces import Traces, tracer_provider

        traces = Traces(tracer_provider(role, instance), model)
    except ImportError as error:
        logger.error("no traces: %s; %s", error, missing_extra("tracing"))
        return None
    except ValueError as error:
        logger.error("no traces: OpenTelemetry refuses a variable of the environment: %s", error)
        return None
    logger.info("traces go to %s", first(environment, ENDPOINTS))
    return traces
