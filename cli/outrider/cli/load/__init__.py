"""The load generator behind `outrider bench serve`, for any OpenAI-compatible endpoint.

Knows nothing of Outrider's own workers: it speaks HTTP and counts what comes back.
"""
