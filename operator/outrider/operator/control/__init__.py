"""The control loop: from what is seen of a service to its policy and its number of drafts.

Pure: no clock, no I/O, no Kubernetes. Leaves looking, pushing and scaling to a hand: the operator,
or `outrider run`.
"""
