"""The workers in their pods: the client that reads states and pushes policies, and its polls.

Leaves decisions to `control`.
"""
