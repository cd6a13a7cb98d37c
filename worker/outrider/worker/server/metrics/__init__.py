"""Prometheus metrics of a worker: counters of its engine, latencies of its requests.

Leaves names and help texts to `outrider.contract.metrics`, the HTTP server to
`outrider.worker.api`.
"""
