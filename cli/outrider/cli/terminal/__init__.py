"""The terminal of a command: progress, signals, text that is read, JSON and pictures written.

Knows no worker and no service.
"""
