"""What a `quantization_config` says of a folder's weights, and which ones can be read.

Leaves the tensors to `quantised_folder`; imports nothing that computes.
"""

import enum
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from outrider.worker.errors import ModelError

FIELD = "quantization_config"


class Method(enum.StrEnum):
    """Values of `quant_method` whose folders load."""

    AWQ = "awq"
    GPTQ = "gptq"
    FP8 = "fp8"
    COMPRESSED = "compressed-tensors"


ALLOWED: Mapping[Method, Mapping[str, tuple[Any, ...]]] = {
    Method.AWQ: {"bits": (4,), "version": ("gemm", None), "zero_point": (True, None)},
    Method.GPTQ: {
        "bits": (4,),
        "desc_act": (False, None),
        "checkpoint_format": ("gptq", "gptq_v2", None),
    },
    Method.FP8: {"fmt": ("e4m3", None)},
    Method.COMPRESSED: {"format": ("float-quantized",)},
}
"""Fields that decide on the layout, and the values whose layout is known."""


@dataclass(frozen=True, slots=True)
class Quantisation:
    """What a folder's config says of its quants."""

    method: Method
    least_zero: int
    """What is added to the zeros of groups: one is subtracted where GPTQ writes them."""
    block: tuple[int, int]
    """Outputs and inputs that share one of several scales of FP8."""

    @classmethod
    def of(cls, fields: Mapping[str, Any], where: str) -> "Quantisation | None":
        """Read the fields of a config.json; raises `ModelError` for what cannot be read."""
        found = fields.get(FIELD)
        if found is None:
            return None
        values = found if isinstance(found, dict) else {}
        name = values.get("quant_method")
        if name not in list(Method):
            raise refused(where, "quant_method", name, Method)
        method = Method(name)
        for field, allowed in ALLOWED[method].items():
            if values.get(field) not in allowed:
                raise refused(where, field, values.get(field), allowed)
        plain = method is Method.GPTQ and values.get("checkpoint_format") != "gptq_v2"
        rows, columns = values.get("weight_block_size") or (1, 1)
        return cls(method, int(plain), (int(rows), int(columns)))


def refused(where: str, field: str, value: object, allowed: Iterable[object]) -> ModelError:
    """Return the error for a value that is not allowed."""
    good = " or ".join(repr(one) if isinstance(one, str | None) else str(one) for one in allowed)
    return ModelError(f"{where}: {FIELD}: {field}: {value!r} is not supported; allowed: {good}")
