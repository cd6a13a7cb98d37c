"""OpenTelemetry traces of requests and draft sessions, made in a worker's server process.

Nothing here touches an engine's loop: spans follow from what engines report in any case.
"""
