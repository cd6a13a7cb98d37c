"""Simulator: whole services in virtual time, with the product's own schedulers and control loop.

Schedulers, planner, switch, KV accounting and the operator's policy are the real ones; the clock,
passes, sampled tokens and links are not. Knows nothing of models, weights and sockets.
"""
