"""Distillation of a draft from its target: what `outrider distil` starts as a process.

The target answers `prompts` through the engine (`answers`), a few of its layers learn to guess what
it says next (`training`), and a folder comes out that `outrider run` serves (`draft_folder`). Every
stage leaves files that are there as a whole or not at all, so that a run that was killed goes on.
Serving is the worker's, the options are `outrider.cli`'s.
"""
