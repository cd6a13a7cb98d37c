"""`outrider run` and `generate`: prompts and their answers, beside those of a second arrangement.

Leaves starting the service to `local`.
"""
