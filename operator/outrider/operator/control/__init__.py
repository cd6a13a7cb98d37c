"""The control loop: from samples of a service to its policy and its number of drafts.

Pure: no clock, no I/O, no Kubernetes. Leaves scraping, pushing and scaling to its caller: the
operator, or `outrider run`.
"""
