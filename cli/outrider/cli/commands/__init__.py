"""The commands of `outrider`, a module each: options, help, and which parts are put to work.

A module imports those parts in its function, so that help and `--version` wait for none of them.
"""
