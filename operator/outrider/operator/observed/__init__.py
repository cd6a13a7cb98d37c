"""State of one service as the cluster shows it: itself, its children, its pods. Pure.

Leaves reading the cluster to `cluster`, and what ought to be there to `manifests`.
"""
