"""The server process of a worker: sockets, health, control, metrics, traces, shutdown.

Assembles a worker from its settings and serves it. Leaves requests to `api`, engines to `launch`.
"""
