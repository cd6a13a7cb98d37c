"""Inputs of `top_children` from a draft's sessions: settings, scales, target ids, token masks."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch import Tensor

from outrider.kernels.gpu.compilation import Compilation
from outrider.kernels.gpu.sampling_inputs import (
    CHUNK,
    WARPS,
    SamplingInputs,
    chunk_of,
    sampling_inputs_of,
)
from outrider.kernels.sampling.filters import TEMPERATURE_FLOOR
from outrider.kernels.sampling.gumbel_max import Settings


@dataclass(frozen=True, slots=True)
class ChildInputs:
    """Settings by which the children of n rows are scored; tensors on the device."""

    sampling: SamplingInputs
    """Sampling inputs of the target; positions are the children's."""
    scale: Tensor  # float32 [n] error scale s where the temperature is 0, T / s elsewhere
    token_ids: Tensor | None
    """Target ids of this rank's columns, int32 [columns], distinct; None: rank * columns + c."""
    log_share: float
    """At most 0: ln of the share of tokens that the draft's vocabulary covers."""


def child_inputs_of(
    settings: Sequence[Settings],
    error_scales: Sequence[float],
    positions: Sequence[int],
    device: str,
    token_ids: Tensor | None = None,
    log_share: float = 0.0,
) -> ChildInputs:
    """Return the inputs of rows with their requests' settings; raises `ValueError` for a scale or
    share out of limits.

    error_scales in logits, above 0; positions: of each row's children.
    """
    if not log_share <= 0 or any(not scale > 0 for scale in error_scales):
        raise ValueError(f"error_scales {error_scales} must be > 0, log_share {log_share} <= 0")
    scales = [scale_of(s, error) for s, error in zip(settings, error_scales, strict=True)]
    scale = torch.tensor(scales, dtype=torch.float32, device=device)
    return ChildInputs(sampling_inputs_of(settings, positions, device), scale, token_ids, log_share)


def scale_of(settings: Settings, error_scale: float) -> float:
    """Return what a row's scores are divided by at temperature 0, and multiplied by elsewhere."""
    if settings.temperature == 0:
        return error_scale
    return max(settings.temperature, TEMPERATURE_FLOOR) / error_scale


@triton.jit
def mask_kernel(  # type: ignore[no-untyped-def]
    logits, allowed, masks, row_size, columns, CHUNK: tl.constexpr
):
    row = tl.program_id(1)
    mask = tl.load(masks + row)
    if mask >= 0:
        column = tl.program_id(0) * CHUNK + tl.arange(0, CHUNK)
        held = tl.load(allowed + mask.to(tl.int64) * columns + column, column < columns, other=1)
        at = logits + row.to(tl.int64) * row_size + column
        tl.store(at, tl.full((CHUNK,), float("-inf"), tl.float32), held == 0)


def mask_out(logits: Tensor, columns: int, allowed: Tensor, masks: Tensor) -> None:
    """Set logits to -inf, in place, in the columns that a row's mask does not allow.

    logits: [rows, at least `columns`], any float type; allowed: bool [masks, columns]; masks: int32
    [rows], line of `allowed`, -1 for none. Traffic: columns bytes for each masked row.
    """
    if allowed.shape[1] != columns or masks.shape != logits.shape[:1]:
        raise ValueError(f"allowed, masks: {tuple(allowed.shape)}, {tuple(masks.shape)}")
    chunk = chunk_of(columns)
    grid = (triton.cdiv(columns, chunk), logits.shape[0])
    mask_kernel[grid](
        logits, allowed.view(torch.uint8), masks, logits.stride(0), columns, chunk, num_warps=WARPS
    )


def mask_out_reference(logits: Tensor, columns: int, allowed: Tensor, masks: Tensor) -> None:
    barred = ~allowed[masks.clamp_min(0).long()] & (masks >= 0)[:, None]
    logits[:, :columns].masked_fill_(barred, -torch.inf)


COMPILATIONS = (
    Compilation(
        kernel=mask_kernel,
        name="mask",
        constants={"CHUNK": CHUNK},
        warps=WARPS,
        multiples=("row_size", "columns"),
    ),
)
