"""The operator: makes a cluster as its SpeculativeServices describe it.

Leaves computing to the workers; a worker without an operator serves all the same.
"""
