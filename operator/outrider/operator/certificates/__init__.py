"""Certificates of workers: the authorities that sign them, and whose each is.

Leaves Secrets to `manifests` and `cluster`, and handshakes to the workers.
"""
