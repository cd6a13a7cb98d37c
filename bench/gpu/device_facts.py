"""Facts of a CUDA device by which all other figures are judged: `python -m bench.gpu.device_facts`.

Name, clocks and versions; bandwidth of a copy and of reading alone; a big product; and what a node
of a CUDA graph costs where its kernel does nothing, with and without programmatic dependent launch.
A reading that fails says why and stops no other. Writes `bench/results/device_facts.json`.
"""

import hashlib
import math
import os
import platform
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from bench.gpu.cases.graph_timing import copy_bandwidth
from bench.gpu.device_run import Entry, Task, named, parser, saver, says_missing, sweep
from bench.record.report import RESULTS

REPORT = RESULTS / "device_facts.json"
COMMAND = "python -m bench.gpu.device_facts"
ASKED = (
    "name", "driver_version", "memory.total", "memory.used", "clocks.sm", "clocks.max.sm",
    "clocks.mem", "clocks.max.mem", "power.limit", "temperature.gpu",
)  # fmt: skip
"""Fields of nvidia-smi."""
READ = 2**30
"""Numbers of 4 bytes that are read."""
BLOCK = 4096
ROUNDS = 16
"""Blocks that one program reads."""
SIDE = 8192
"""Rows, columns and inputs of the product."""
NODES = 200
REPEATS = 10


def main(arguments: list[str] | None = None) -> int:
    """Measure, print and write all readings; `--resume` measures them again."""
    options = parser(__doc__, COMMAND, REPORT).parse_args(arguments)
    if says_missing(COMMAND):
        return 2
    save = saver(options, COMMAND, named(), "facts")
    outcome = sweep(tasks(), {}, options.seconds, save, line)
    print(outcome.said())
    return outcome.status


def tasks() -> Iterator[Task]:
    """All readings: those that are only asked for, then those that are measured."""
    for name, reading in READINGS.items():
        yield Task(name, reading)


def nvidia_smi() -> Entry:
    """Return what the driver says, with its units."""
    words = ["nvidia-smi", f"--query-gpu={','.join(ASKED)}", "--format=csv,noheader"]
    values = output(words).splitlines()[0].split(", ")
    return dict(zip(ASKED, values, strict=True))


def versions() -> Entry:
    """Return versions of Python and of what runs kernels."""
    return {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "triton": triton.__version__,
        "CUDA": torch.version.cuda,
        "processors": os.cpu_count(),
    }


def compiler() -> Entry:
    """Return the C compiler with which Triton builds its launchers."""
    return {"version": output([os.environ.get("CC", "gcc"), "--version"]).splitlines()[0]}


def triton_key() -> Entry:
    """Return the part of Triton's compile cache key that stands for Triton itself, hashed."""
    try:
        from triton.runtime.cache import triton_key as key
    except ImportError:
        return {"sha256": f"none: triton {triton.__version__} has no triton_key"}
    return {"sha256": hashlib.sha256(key().encode()).hexdigest()[:12]}


def output(words: Sequence[str]) -> str:
    """Return what a command prints; raises `OSError` or `CalledProcessError`."""
    return subprocess.run(words, capture_output=True, text=True, check=True, timeout=20).stdout


def copied() -> Entry:
    """Return the bandwidth of a copy within the device, read and written bytes together."""
    return {"GB/s": round(copy_bandwidth() / 1e9)}


def read(reader: Callable[[Tensor], object]) -> Entry:
    """Return the bandwidth at which `reader` reads 4 GiB."""
    source = torch.ones(READ, device="cuda")
    return {"GB/s": round(source.nbytes / fastest(lambda: reader(source)) / 1e9)}


@triton.jit  # type: ignore[untyped-decorator]
def read_kernel(source, out, BLOCK: tl.constexpr, ROUNDS: tl.constexpr):  # type: ignore[no-untyped-def]
    """Add up ROUNDS blocks; a program's sum goes to `out`."""
    first = tl.program_id(0).to(tl.int64) * BLOCK * ROUNDS + tl.arange(0, BLOCK)
    total = tl.zeros([BLOCK], tl.float32)
    for turn in range(ROUNDS):
        total += tl.load(source + first + turn * BLOCK)
    tl.store(out + tl.program_id(0), tl.sum(total))


def by_triton(source: Tensor) -> Tensor:
    """Read by `read_kernel`, 256 KiB a program; the sums of all programs."""
    programs = source.numel() // (BLOCK * ROUNDS)
    out = source.new_empty(programs)
    read_kernel[(programs,)](source, out, BLOCK, ROUNDS, num_warps=8)
    return out


def product() -> Entry:
    """Return TFLOP/s of a product of random bfloat16 matrices; zeros would draw less power."""
    a, b = (torch.randn(SIDE, SIDE, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    out = torch.empty_like(a)
    return {"TFLOP/s": round(2 * SIDE**3 / fastest(lambda: torch.mm(a, b, out=out)) / 1e12)}


@triton.jit
def empty_kernel(word):  # type: ignore[no-untyped-def]
    """Do nothing."""


@triton.jit
def dependent_kernel(word):  # type: ignore[no-untyped-def]
    """Let the next kernel start, and wait for the one before."""
    gdc_launch_dependents()
    gdc_wait()


def node(kernel: Any, **options: bool) -> Entry:
    """Return microseconds of a node of a graph of launches of one program."""
    word = torch.zeros(1, dtype=torch.int32, device="cuda")
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        kernel[(1,)](word, **options)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(NODES):
            kernel[(1,)](word, **options)
    return {"us": round(fastest(graph.replay) / NODES * 1e6, 3)}


def fastest(work: Callable[[], object]) -> float:
    """Return seconds of the fastest of REPEATS runs, after one that is not counted."""
    work()
    best = math.inf
    for _ in range(REPEATS):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        work()
        end.record()
        end.synchronize()
        best = min(best, begin.elapsed_time(end) / 1e3)
    return best


READINGS: dict[str, Callable[[], Entry]] = {
    "nvidia-smi": nvidia_smi,
    "versions": versions,
    "C compiler": compiler,
    "triton key": triton_key,
    "copy bandwidth, read and written": copied,
    "read bandwidth, a Triton kernel": partial(read, by_triton),
    "read bandwidth, torch.sum": partial(read, torch.sum),
    f"{SIDE} x {SIDE} x {SIDE} bfloat16": product,
    f"node of {NODES} empty kernels": partial(node, empty_kernel),
    f"node of {NODES} dependent kernels": partial(node, dependent_kernel, launch_pdl=True),
    f"node of {NODES} dependent kernels, launched plainly": partial(node, dependent_kernel),
}


def line(one: Entry) -> str:
    """One reading for people."""
    values = ", ".join(f"{name} {value}" for name, value in one.items() if name != "case")
    return f"{one['case']:48} {values}"


if __name__ == "__main__":
    sys.exit(main())
