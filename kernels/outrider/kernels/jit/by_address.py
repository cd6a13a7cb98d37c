"""Compiled functions that compiled code calls by their address.

numba compiles what a function calls by name again with each of its callers, and each of theirs. A
call by address takes the code that is there: large functions that several others call are compiled
once for all of them (docs/decisions/0072, 0081). It costs one jump. An error raised inside is lost:
numba prints it and goes on. So callers see to it that there is none but an allocation that fails.
"""

from typing import Any

from numba import typeof, types


class ByAddress(types.WrapperAddressProtocol):
    """A compiled function for arguments of certain types, as a value that compiled code can call.

    Compiles it where that was not done before.
    """

    def __init__(self, function: Any, *arguments: Any) -> None:
        """`function`: as `njit` returns it; `arguments`: any, for their types."""
        given = tuple(map(typeof, arguments))
        function.compile(given)
        compiled = function.overloads[given]
        self._signature = compiled.signature
        self._address: int = compiled.library.get_pointer_to_function(
            compiled.fndesc.llvm_cfunc_wrapper_name
        )
        self._library = compiled.library
        """Keeps the code where it is."""

    def signature(self) -> Any:
        """Return numba's signature of it."""
        return self._signature

    def __wrapper_address__(self) -> int:
        """Return its address."""
        return self._address
