"""`python -m outrider.worker profile`: step costs on this machine, in full.

Prints progress as JSON lines and one JSON object at the end. Every role and number of threads is
measured in a process of its own, as it would run, a target with all its ranks, a draft as one; two
roles that share the machine are not measured together, which `bench/speculation` does.
"""

import dataclasses
import json
import subprocess
import sys
import tempfile
from typing import Any

from outrider.contract import processors
from outrider.contract.settings import ModelSettings, Role, WorkerSettings
from outrider.worker.errors import ModelError
from outrider.worker.host.device import torch_device

CONTEXT = 256
"""Tokens of context that costs are reported for."""


def main(settings: WorkerSettings, parent: int | None = None) -> int:
    """Measure target and draft, or a draft alone, at every useful number of threads.

    `parent`: descriptor of a pipe; what is measured ends with it, as with `exit_with_parent`.
    """
    counts = [settings.threads] if torch_device(settings.device) else thread_counts()
    models = {settings.role: settings.model}
    if settings.colocated is not None:
        models[Role.DRAFT] = settings.colocated
    jobs = [(role, threads) for role in models for threads in counts]
    costs: dict[str, dict[str, Any]] = {}
    for done, (role, threads) in enumerate(jobs):
        print_json(stage=on_threads(role, threads), done=done, total=len(jobs))
        measured = measure_apart(settings, role, models[role], threads, parent)
        costs.setdefault(role, {})[str(threads)] = measured
    print_json(**costs)
    return 0


def on_threads(role: Role, threads: int) -> str:
    """Return what is measured, in words."""
    return f"{role} with {threads} thread{'s' if threads != 1 else ''}"


def thread_counts() -> list[int]:
    """Return 1, 2, 4, … and the number of cores."""
    most = processors.count()
    counts = {1 << i for i in range(most.bit_length()) if 1 << i <= most}
    return sorted(counts | {most})


def measure_apart(
    settings: WorkerSettings, role: Role, model: ModelSettings, threads: int, parent: int | None
) -> dict[str, Any]:
    """Run `measure` in a fresh process; raises `ModelError` if it fails."""
    ranks = settings if role is settings.role else settings.on_one_rank()
    one = dataclasses.replace(
        ranks,
        role=role,
        model=model,
        threads=threads,
        colocated=None,
        api_keys_file=None,
        allowed_hosts=(),
        tls_cert=None,
        tls_key=None,
    )
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        file.write(one.to_json())
        file.flush()
        command = [sys.executable, "-P", "-m", "outrider.worker", "measure"]
        inherited = () if parent is None else (parent,)
        run = subprocess.run(
            [*command, "--settings", file.name, *(f"--parent-fd={end}" for end in inherited)],
            stdout=subprocess.PIPE,
            pass_fds=inherited,
            check=False,
        )
    if run.returncode != 0:
        raise ModelError(f"measuring the {on_threads(role, threads)} failed")
    measured: dict[str, Any] = json.loads(run.stdout)
    return measured


def measure(settings: WorkerSettings) -> int:
    """Run `python -m outrider.worker measure`: costs of one model in this process, as JSON."""
    from outrider.worker.launch.load import load_model
    from outrider.worker.launch.prepare import prepare_models

    prepared = prepare_models(settings).own
    loaded = load_model(settings, settings.role, settings.model.dtype, prepared)
    print_json(
        dtype=str(loaded.path),
        path_seconds=loaded.path_seconds,
        rows={str(n): loaded.costs.seconds(n, CONTEXT) for n in loaded.costs.rows},
        step_costs=loaded.costs.to_json(),
    )
    loaded.model.close()
    return 0


def print_json(**fields: Any) -> None:
    """Print one JSON object on a line of stdout."""
    print(json.dumps(fields), flush=True)
