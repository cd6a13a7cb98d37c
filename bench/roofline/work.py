"""Bytes and flops of a decode step, kernel by kernel, and the least that they take on a GPU.

Pure arithmetic; as the kernels' docstrings count them. Leaves pages to `roofline`.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

HALF = 2
"""Bytes of a bfloat16."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """A model's shape."""

    name: str
    layers: int
    hidden: int
    ffn: int
    heads: int
    kv_heads: int
    head_dim: int
    vocabulary: int


LLAMA_8B = Shape(name="Llama-3-8B", layers=32, hidden=4096, ffn=14336, heads=32, kv_heads=8,
                 head_dim=128, vocabulary=128256)  # fmt: skip
LLAMA_70B = Shape(name="Llama-3-70B", layers=80, hidden=8192, ffn=28672, heads=64, kv_heads=8,
                  head_dim=128, vocabulary=128256)  # fmt: skip
LLAMA_1B = Shape(name="Llama-3.2-1B", layers=16, hidden=2048, ffn=8192, heads=32, kv_heads=8,
                 head_dim=64, vocabulary=128256)  # fmt: skip
SMOLLM2_135M = Shape(name="SmolLM2-135M", layers=30, hidden=576, ffn=1536, heads=9, kv_heads=3,
                     head_dim=64, vocabulary=49152)  # fmt: skip
MODELS = (LLAMA_8B, LLAMA_70B)
WEIGHTS = ("bf16", "fp8", "int4")


@dataclass(frozen=True, slots=True)
class Work:
    """Bytes and flops of one kernel in one step on one rank, over all its launches."""

    kernel: str
    launches: int
    bytes: float
    """Read from and written to the device's memory."""
    flops: float = 0
    sent: float = 0
    """Bytes sent to other ranks."""


def matrix_bytes(outputs: int, inputs: int, weights: str) -> float:
    """Of one layer's weights, with scales and zeros."""
    count = outputs * inputs
    return {"bf16": 2 * count, "fp8": count + 4 * outputs, "int4": count / 2 + 3 * count / 128}[
        weights
    ]


def matrix(outputs: int, inputs: int, rows: int, weights: str) -> tuple[float, float]:
    """Return bytes and flops of x @ W.T; sums of splits are taken to stay in L2."""
    moved = matrix_bytes(outputs, inputs, weights) + rows * (inputs + outputs) * HALF
    return moved, 2 * outputs * inputs * rows


def step(model: Shape, ranks: int, rows: int, context: int, weights: str) -> Iterator[Work]:
    """The kernels of a step of one sequence: `rows` rows over `context` positions that they share.

    The head and the residual stream stay bfloat16, as does the KV.
    """
    layers, hidden, size = model.layers, model.hidden, model.head_dim
    heads, kv_heads = model.heads // ranks, max(1, model.kv_heads // ranks)
    ffn, vocabulary = model.ffn // ranks, model.vocabulary // ranks
    norms = 2 * layers + 1
    yield Work("norm", norms, norms * (4 * rows * hidden + hidden) * HALF)
    yield _matrices("projection", layers, (heads + 2 * kv_heads) * size, hidden, rows, weights)
    kept = 2 * kv_heads * context * size * HALF
    passed = 2 * rows * heads * size * HALF
    products = 4 * rows * heads * size * context
    yield Work("attention", layers, layers * (kept + passed), layers * products)
    yield _matrices("linear out", layers, hidden, heads * size, rows, weights)
    moved, flops = matrix(2 * ffn, hidden, rows, weights)
    yield Work("gated", layers, layers * (moved - rows * ffn * HALF), layers * flops)
    yield _matrices("linear down", layers, hidden, ffn, rows, weights)
    if ranks > 1:
        part = rows * hidden * HALF
        sums = 2 * layers
        yield Work("all-reduce", sums, sums * (ranks + 1) * part, 0, sums * (ranks - 1) * part)
    yield _matrices("linear head", 1, vocabulary, hidden, rows, "bf16")
    yield Work("sampling", 1, rows * vocabulary * HALF)


def _matrices(kernel: str, count: int, outputs: int, inputs: int, rows: int, weights: str) -> Work:
    moved, flops = matrix(outputs, inputs, rows, weights)
    return Work(kernel, count, count * moved, count * flops)


@dataclass(frozen=True, slots=True)
class Part:
    """A GPU by its data sheet; decimal units."""

    name: str
    bandwidth: float
    """Bytes a second of memory."""
    flops: float
    """Multiplications and additions a second in bfloat16, dense."""
    link: float
    """Bytes a second that it sends over NVLink."""
    source: str


H100 = Part("H100", 3.35e12, 989.4e12, 450e9, "NVIDIA H100 Tensor Core GPU data sheet, SXM")
H200 = Part("H200", 4.8e12, 989.4e12, 450e9, "NVIDIA H200 Tensor Core GPU data sheet, SXM")
PARTS = (H100, H200)


def seconds(work: Work, part: Part) -> float:
    """The least that a kernel takes in a step: its slowest resource at full speed."""
    return max(work.bytes / part.bandwidth, work.flops / part.flops, work.sent / part.link)


def total(works: Iterable[Work], part: Part) -> float:
    """Return seconds of a step: kernels run one after the other."""
    return sum(seconds(work, part) for work in works)
