"""The API server: its client, the watches and their caches, the leader's Lease, permissions.

Leaves to the modules above what is written, and why.
"""
