"""The HTTP servers of the operator's own process: probes and metrics.

Leaves to `reconcile` what the metrics count.
"""
