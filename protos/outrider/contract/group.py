"""Environment of a replica that spans machines: how many, which this is, where the first one is.

Whoever starts the pods sets them (docs/concepts/tensor-parallelism.md); a worker without them is
alone on its machine.
"""

NODES = "OUTRIDER_NODES"
"""Machines of the replica; each runs as many ranks."""
NODE = "OUTRIDER_NODE"
"""This one's number, from 0; number 0 leads."""
LEADER = "OUTRIDER_LEADER"
"""Host name or address of number 0, as the others and it itself reach it."""
