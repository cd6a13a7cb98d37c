"""GPU kernels under compute-sanitizer: `python -m bench.gpu.sanitize`.

Runs a test of each kernel at a small shape, and those of `tests/gpu` that are named `sanitized`,
under memcheck, then racecheck, then synccheck; each tool has an equal part of the time that is
left. Kernels of torch are not checked. Needs a CUDA device and CUDA's toolkit; writes
`bench/results/sanitize.json`, and what the tools print beside it.
"""

import re
import shutil
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path

from bench.device import TIMED_OUT, log_lines, started
from bench.gpu.device_run import Entry, Task, earlier, named, parser, saver, says_missing, sweep
from bench.record.report import RESULTS

REPORT = RESULTS / "sanitize.json"
COMMAND = "python -m bench.gpu.sanitize"
PROGRAM = "compute-sanitizer"
TOOLKIT = "/usr/local/cuda/bin"
TOOLS = ("memcheck", "racecheck", "synccheck")
SECONDS = 900.0
"""Seconds of all tools together, where nothing else is said."""
COLLECTING = 60
"""Seconds in which pytest finds the tests of production shapes."""
FOUND_ERRORS = 86
"""Exit status of a tool that has found something."""
OPTIONS = (
    "--target-processes", "application-only", "--report-api-errors", "no",
    "--kernel-name-exclude", "kns=native", "--error-exitcode", str(FOUND_ERRORS),
)  # fmt: skip
"""The process alone, not compilers that it starts; no kernels of torch's own, in `at::native`."""
UNCACHED = "PYTORCH_NO_CUDA_MEMORY_CACHING=1"
"""Makes each tensor an allocation of its own, whose bounds memcheck knows."""
PYTEST = (
    sys.executable, "-m", "pytest", "-m", "gpu", "-o", "addopts=--import-mode=importlib",
    "-p", "no:cacheprovider", "-W", "default",
)  # fmt: skip
SMALL = "tests/unit/kernels/gpu"
SMALL_TESTS = (
    "test_tree_attention.py::test_trees_prompts_and_plain_rows_see_their_contexts"
    "[bfloat16-cuda-4-2-32-0]",
    "test_linear.py::test_products_are_those_of_the_dense_matrix[cuda-0-shape2-bfloat16]",
    "test_linear.py::test_products_are_those_of_the_dense_matrix[cuda-1-shape7-bfloat16]",
    "test_linear.py::test_products_are_those_of_the_dense_matrix[cuda-2-shape5-bfloat16]",
    "test_linear.py::test_more_rows_than_a_tile_has[bfloat16-cuda]",
    "test_gated_mlp.py::test_the_product_is_that_of_the_dense_halves[cuda-0-shape2-bfloat16]",
    "test_projection.py::test_heads_are_turned_and_written_to_their_slots[cuda-0-norms-bfloat16]",
    "test_norm.py::test_the_sum_is_kept_and_normed[cuda-shape7-True-bfloat16]",
    "test_cache.py::test_moves_read_everything_before_they_write"
    "[bfloat16-cuda-sources0-destinations0]",
    "test_gpu_sampling.py::test_equals_go_to_the_lowest_id_and_rows_without_a_maximum_to_none[cuda]",
    "test_gpu_sampling.py::test_tokens_are_those_of_the_cpu[bfloat16-cuda]",
    "test_top_children.py::test_rows_with_few_tokens_or_no_maximum_say_none[cuda]",
    "test_rank_sum.py::test_parts_are_added_in_the_order_of_ranks[bfloat16-cuda-3-1-82]",
    "test_all_reduce.py::test_numbers_of_calls_may_run_over[cuda]",
    "test_linear_sum.py::test_numbers_of_launches_may_run_over[cuda]",
)
"""A test of each kernel at a small shape."""
GROWTH_TEST = (
    "tests/unit/worker/gpu/test_gpu_tree_growth.py"
    "::test_limits_hold_on_the_device[cuda-change1-rows1]"
)
"""The test of the one kernel whose reference is the worker's own tree."""
PRODUCTION = "tests/gpu"
SUMMARY = re.compile(r"ERROR SUMMARY: (\d+) error|RACECHECK SUMMARY: (\d+) hazard")
"""The last line of a tool."""
FINDING = re.compile(r"={9} (?!COMPUTE|ERROR|RACECHECK SUMMARY|Target|\s)(.*)")
"""First line of something found."""


def main(arguments: list[str] | None = None) -> int:
    """Run the tools, and write the report."""
    options = parser(__doc__, COMMAND, REPORT).parse_args(arguments)
    if says_missing(COMMAND):
        return 2
    begin, facts = time.monotonic(), named()
    save = saver(options, COMMAND, facts, "tools")
    kept = earlier(options.report, facts, "tools") if options.resume else {}
    options.report.parent.mkdir(parents=True, exist_ok=True)
    sanitizer = Sanitizer(program(), options.report.parent, begin + (options.seconds or SECONDS))
    outcome = sweep(tasks(sanitizer, kept), kept, options.seconds, save, line)
    print(outcome.said())
    return outcome.status


def program() -> str | None:
    """Return the path of compute-sanitizer, if it is installed."""
    return shutil.which(PROGRAM) or shutil.which(PROGRAM, path=TOOLKIT)


@dataclass(frozen=True, slots=True)
class Sanitizer:
    """compute-sanitizer, as it is found here."""

    program: str | None
    logs: Path
    """Folder of its output."""
    deadline: float
    """When the last tool should have ended, by the monotonic clock."""


def tasks(sanitizer: Sanitizer, kept: Mapping[str, Entry]) -> Iterator[Task]:
    """A task for each tool."""
    left = [tool for tool in TOOLS if "failed" in kept.get(tool, {"failed": ""})]
    for tool in TOOLS:
        following = left[left.index(tool) :] if tool in left else [tool]
        yield Task(tool, partial(check, sanitizer, tool, len(following)))


def check(sanitizer: Sanitizer, tool: str, sharing: int) -> Entry:
    """Return what a tool finds, in its part of the time, which `sharing` tools have together."""
    if sanitizer.program is None:
        return {"failed": f"not run: there is no {PROGRAM} here"}
    ids = [
        *(f"{SMALL}/{name}" for name in SMALL_TESTS),
        GROWTH_TEST,
        *production_tests(sanitizer.logs),
    ]
    uncached = [UNCACHED] if tool == "memcheck" else []
    words = ["env", *uncached, sanitizer.program, "--tool", tool, *OPTIONS, *PYTEST, "-v", *ids]
    seconds = max(1.0, (sanitizer.deadline - time.monotonic()) / sharing)
    code = started(words, sanitizer.logs / f"{tool}.log", seconds)
    return verdict(log_lines(sanitizer.logs, tool), code, seconds)


@cache
def production_tests(logs: Path) -> tuple[str, ...]:
    """Return the tests of production shapes that are meant for these tools."""
    words = [*PYTEST, "--collect-only", "-q", "-k", "sanitized", PRODUCTION]
    started(words, logs / "sanitized.log", COLLECTING)
    names = log_lines(logs, "sanitized")
    return tuple(name for name in names if name.startswith(f"{PRODUCTION}/"))


def verdict(lines: Sequence[str], code: int, seconds: float) -> Entry:
    """Return how many tests have passed; `failed` if anything was found, failed or left."""
    passed = sum(" PASSED" in line for line in lines)
    summaries = [found for line in lines if (found := SUMMARY.search(line))]
    errors = max((int(found[1] or found[2]) for found in summaries), default=0)
    first = next((found[1] for one in lines if (found := FINDING.match(one))), "")
    if errors or code == FOUND_ERRORS:
        return {"failed": f"{errors} errors found, {passed} tests passed; the first: {first}"}
    if code == TIMED_OUT:
        return {"failed": f"cut off after {seconds:.0f} s, {passed} tests passed; {first}"}
    if code or not summaries:
        last = next(iter(lines[-1:]), "no output")
        return {"failed": f"exit status {code}, {passed} tests passed; {first or last}"}
    return {"found": "clean", "passed": passed}


def line(one: Entry) -> str:
    """One tool for people."""
    return f"{one['case']:10} {one['found']}, {one['passed']} tests passed"


if __name__ == "__main__":
    sys.exit(main())
