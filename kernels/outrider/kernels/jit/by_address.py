"""Compiled functions that compiled code calls by their address.

numba compiles what a function calls by name again with each of its callers, and each of theirs. A
call by address takes the code that is there: large functions that several others call are compiled
once for all of them (docs/decisions/0003). It costs one jump. An error raised inside is
raised in the caller, as with a call by name.
"""

from typing import TYPE_CHECKING, Any

from numba import typeof, types
from numba.core import cgutils
from numba.experimental.function_type import FunctionModel
from numba.extending import NativeValue, register_model, typeof_impl, unbox


class AddressType(types.FunctionType):
    """numba's type of a function that is called by its address."""


register_model(AddressType)(FunctionModel)


class ByAddress:
    """A compiled function for arguments of certain types, as a value that compiled code can call.

    Compiles it where that was not done before.
    """

    def __init__(self, function: Any, *arguments: Any) -> None:
        """`function`: as `njit` returns it; `arguments`: any, for their types."""
        given = tuple(map(typeof, arguments))
        function.compile(given)
        compiled = function.overloads[given]
        self.type = AddressType(compiled.signature)
        self.address: int = compiled.library.get_pointer_to_function(compiled.fndesc.llvm_func_name)
        self._library = compiled.library
        """Keeps the code where it is."""

    if TYPE_CHECKING:

        def __call__(self, *arguments: Any) -> Any:
            """Call the function, as compiled code alone can."""


@typeof_impl.register(ByAddress)
def _typeof(function: ByAddress, context: Any) -> AddressType:
    return function.type


@unbox(AddressType)
def _unbox(kind: AddressType, function: Any, c: Any) -> NativeValue:
    """Take the function itself: numba takes a wrapper for C, which prints errors and goes on."""
    made = cgutils.create_struct_proxy(kind)(c.context, c.builder)
    address = c.pyapi.object_getattr_string(function, "address")
    made.jit_addr = c.pyapi.long_as_voidptr(address)
    c.pyapi.decref(address)
    return NativeValue(made._getvalue())
