"""A service on this machine: its workers, where its draft is placed, and trials of arrangements.

Leaves the choice of an arrangement to `placement`, and what it is asked to `run`.
"""
