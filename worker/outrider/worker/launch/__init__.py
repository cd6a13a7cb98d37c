"""Builds and starts engines: loads models, warms them up, starts processes, threads and ranks.

The only package that knows target, draft, gpu and parallel together. Leaves serving to `server`.
"""
