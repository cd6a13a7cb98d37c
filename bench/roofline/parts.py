"""GPUs by their data sheets, and the least that a kernel takes on one."""

from collections.abc import Iterable
from dataclasses import dataclass

from bench.roofline.work import Work


@dataclass(frozen=True, slots=True)
class Part:
    """A GPU by its data sheet; decimal units."""

    name: str
    bandwidth: float
    """Bytes a second of memory."""
    flops: float
    """bfloat16 multiplications and additions a second, dense."""
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
