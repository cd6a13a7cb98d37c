"""Small simulations for tests: a pair with round numbers, as YAML."""

import functools
from pathlib import Path

from outrider.simulator.description import Simulation, parse_simulation
from outrider.simulator.run import CellRun, run_cell
from outrider.worker.messages import Tokens

TARGET = """
target:
  maxRunning: 8
  maxContext: 512
  costs: {rows: [1, 16, 128], milliseconds: [10, 12, 40], hostMicroseconds: 500}
"""
DRAFT = """
draft:
  startSeconds: 1
  maxContext: 512
  costs: {rows: [1, 32], milliseconds: [1, 1.5], hostMicroseconds: 100}
  link: {microseconds: 100}
"""
TRAFFIC = """
traffic:
  rate: 4
  promptTokens: {mean: 60, variation: 0.5, most: 200}
  answerTokens: {mean: 60, variation: 0.5, most: 200}
"""


def simulation(*parts: str, seconds: float = 8.0, seed: int = 3) -> Simulation:
    """Return what the parts of a YAML say together."""
    return parse_simulation(f"seconds: {seconds}\nseed: {seed}\n" + "".join(parts))


def run(described: Simulation) -> CellRun:
    """Run its first cell."""
    return run_cell(described, Path())


@functools.cache
def shared_run(*parts: str) -> tuple[CellRun, dict[int, list[int]]]:
    """Run the first cell of a YAML once for all tests; return also each request's tokens."""
    texts: dict[int, list[int]] = {}

    def note(message: object) -> None:
        if isinstance(message, Tokens):
            texts.setdefault(message.request, []).extend(message.ids)

    return run_cell(simulation(*parts), Path(), heard=note), texts
