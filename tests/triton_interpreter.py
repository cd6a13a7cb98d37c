"""Triton's interpreter, with the same answers in a third of the time.

Three of its parts cost more than the kernels that they serve: it puts its own functions into
`triton.language` in every call of a device function and not only in every launch, looks up numpy's
types in a table that it builds each time, and computes for each sum, difference and product of
integers whether it has run over, which nothing reads. Leaves all others as they are.
"""

import dataclasses
from typing import Any

import numpy as np
import triton.language as tl
from triton.runtime import interpreter

_triton_patch_lang = interpreter._patch_lang
_triton_np_dtype = interpreter._get_np_dtype
_np_dtypes: dict[str, np.dtype] = {}


def hasten() -> None:
    """From now on, in this process."""
    interpreter._patch_lang = patch_lang
    interpreter._get_np_dtype = np_dtype
    builder = interpreter.interpreter_builder
    if not builder.options.debug:  # else the kernel would end there
        builder.options = dataclasses.replace(builder.options, sanitize_overflow=False)


def patch_lang(function: Any) -> Any:
    """Put the interpreter's functions into the language, if a launch around has not; return the
    scope that takes them out again."""
    return interpreter._LangPatchScope() if _patched(function) else _triton_patch_lang(function)


def _patched(function: Any) -> bool:
    """Whether the language has them, by each of the names under which a function's module has it.

    A function of `triton.language.standard`, such as `tl.sum`, knows `triton.language.core` alone.
    """
    if tl.core.is_builtin(tl.tensor.__add__):
        return False
    names = function.__globals__.values()
    languages = [name for name in names if name is tl or name is tl.core]
    return not any(tl.core.is_builtin(language.load) for language in languages)


def np_dtype(type_: Any) -> np.dtype:
    """Return numpy's type of the elements of one of Triton's."""
    element = type_.scalar
    found = _np_dtypes.get(element.name)
    if found is None:
        found = _np_dtypes[element.name] = _triton_np_dtype(element)
    return found
