"""Checkpoints: model URIs, the files that they mean, and what is kept of them in the cache.

Leaves what computes with the tensors to `model`.
"""
