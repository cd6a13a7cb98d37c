"""The load generator of `outrider bench serve`: prompts, requests, a run and its figures."""
