"""Step costs of a pair on this machine: in full for `outrider profile`, quickly for a first start.

Leaves the measurement of one model to `launch` and `costs`, tables and what follows from them to
the command line.
"""
