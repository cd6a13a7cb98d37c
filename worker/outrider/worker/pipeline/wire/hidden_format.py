"""Hidden states on the wire: float32 as it is, or rounded to half of the bytes."""

import numpy as np
from numpy.typing import NDArray

from outrider.contract.settings import StageDtype
from outrider.kernels.cpu.packing import to_bfloat
from outrider.worker.checkpoints.checkpoint import widened

Floats = NDArray[np.float32]

MAX_FP16 = np.float32(np.finfo(np.float16).max)
ELEMENT_BYTES = {StageDtype.FP32: 4, StageDtype.AUTO: 4, StageDtype.BF16: 2, StageDtype.FP16: 2}


def pack_hidden(hidden: Floats, form: StageDtype) -> bytes:
    """Return bytes of hidden states; fp16 cuts off what is larger than it can hold."""
    match form:
        case StageDtype.FP32 | StageDtype.AUTO:
            return np.ascontiguousarray(hidden, np.float32).tobytes()
        case StageDtype.BF16:
            return to_bfloat(hidden).tobytes()
        case StageDtype.FP16:
            return np.clip(hidden, -MAX_FP16, MAX_FP16).astype(np.float16).tobytes()


def unpack_hidden(data: bytes, form: StageDtype) -> Floats:
    """Return float32 of whole numbers' bytes, flat."""
    match form:
        case StageDtype.FP32 | StageDtype.AUTO:
            return np.frombuffer(data, np.float32)
        case StageDtype.BF16:
            return widened(np.frombuffer(data, np.uint16))
        case StageDtype.FP16:
            return np.frombuffer(data, np.float16).astype(np.float32)
