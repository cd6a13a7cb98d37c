"""Status of a service after a pass: its conditions, problems and advice, and the events of changes.

Pure but for `report`, which writes them, and `privileges`, which asks the API server. Leaves the
reasons of conditions to `spec`.
"""
