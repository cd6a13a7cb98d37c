"""The worker: serves a target or a draft model; one folder per concept, imports go down only.

The layers and their order are a contract of import-linter (`pyproject.toml`), and a table in
docs/concepts/architecture.md. Leaves arithmetic to `outrider.kernels`, and who starts workers to
the command line and the operator.
"""
