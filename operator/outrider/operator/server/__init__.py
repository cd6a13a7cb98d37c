"""The HTTP servers of the operator's own process: probes, metrics, admission warnings.

Leaves to `reconcile` what the metrics count.
"""
