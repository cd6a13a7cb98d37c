"""Targets that end while requests stream: a rollout, fewer replicas, a node that is drained.

Requests arrive at a mean rate through the Service, by kube-proxy: a few that stream for many
seconds, on connections of their own or kept, and many that ask for a word. None may fail, and
answers to one prompt are compared. Takes the first step of `scenario`.
"""

import contextlib
from collections.abc import Iterator

from tests.e2e.recording import Recording
from tests.e2e.scenario import ADDRESS, SERVICE, TARGETS, Step, install, until_pods

LOADS = {
    "long": "--rate 0.1 --max-tokens 300 --body '{\"ignore_eos\": true}' --prompts prompts.jsonl "
    "--check-text",
    "short": "--rate 0.5 --max-tokens 4 --prompts prompts.jsonl --check-text",
}
"""Loads by the name of the file that tells of each: what three targets on two processors answer
while new pods start (AMD EPYC, AVX2, 2026-11-25). With 0.2 answers of 800 tokens and 4 short ones a
second, one of 1509 short ones waited 60 s for room and was refused; with 0.1 and 1, at a load
average of 12, answers took 178 s, and 13 of 39 did not end within `maxSeconds`, then 300."""
COSTS = (
    f"kubectl get pods -l {TARGETS} -o custom-columns=NAME:.metadata.name,"
    r"COST:'.metadata.annotations.controller\.kubernetes\.io/pod-deletion-cost'"
)
PODS = f"kubectl get pods -l {TARGETS}"
ROLLED_OUT = f"kubectl rollout status deployment/{SERVICE}-target --timeout=25m"
NOBODY_FAILED = """python -c '
import json
for name in ("long", "short"):
    run = json.load(open(name + ".json"))
    assert run["completed"], run["problems"]
    lost, texts, took = run["failed"] + run["rejected"], run["texts"], run["latency"]
    print(name + ":", run["completed"], "completed,", lost, "failed,", round(run["duration"]), "s;",
          "an answer took", round(took["p50"], 1), "s (p50),", round(took["p99"], 1), "s (p99);",
          texts["compared"], "texts compared,", len(texts["differences"]), "differ")
    assert not lost, run["problems"]
    assert texts["compared"] and not texts["differences"], texts["differences"]'"""
"""Ends with another status than 0 where a request failed, or a text differs."""


def apply(on: Recording) -> None:
    """Three targets serve, without a draft: they share two processors."""
    on.run("kubectl apply -f models.yaml")
    on.run("kubectl apply -k .")
    on.run(f"kubectl patch specsvc/{SERVICE} --type merge --patch-file drain.yaml")
    on.run(f"kubectl wait specsvc/{SERVICE} --for=condition=Ready --timeout=25m")
    on.run(until_pods(3))
    on.run(PODS)


def roll_out(on: Recording) -> None:
    """Every target is replaced."""
    with load(on):
        on.run(patched('{"podTemplate": {"metadata": {"annotations": {"try": "2"}}}}'))
        on.run(ROLLED_OUT)
        on.run(until_pods(3))
        on.run(PODS)


def scale_down(on: Recording) -> None:
    """Two of three targets go."""
    with load(on):
        on.run(patched('{"replicas": 1}'))
        on.run("sleep 1")
        on.run(COSTS)
        on.run(until_pods(1))
        on.run(PODS)


def drain_the_node(on: Recording) -> None:
    """One of two targets is evicted; another comes once the node may have one."""
    on.run(patched('{"replicas": 2}'))
    on.run(ROLLED_OUT)
    with load(on):
        on.run(f"kubectl label $(kubectl get pods -l {TARGETS} -o name | head -n 1) leave=now")
        drain = "kubectl drain node-0 --pod-selector leave=now"
        on.run(f"{drain} --delete-emptydir-data --timeout=25m")
        on.run("kubectl uncordon node-0")
        on.run(ROLLED_OUT)
        on.run(PODS)


def patched(target: str) -> str:
    """Return the command that changes the target."""
    change = f'{{"spec": {{"target": {target}}}}}'
    return f"kubectl patch specsvc/{SERVICE} --type merge --patch \\\n  '{change}'"


@contextlib.contextmanager
def load(on: Recording) -> Iterator[None]:
    """Requests arrive, for a while alone; afterwards none may have failed."""
    serve = f"outrider bench serve --url http://{ADDRESS}:8000/v1 --seconds 1500"
    with contextlib.ExitStack() as stack:
        running = [
            on.background(f"{serve} \\\n  {options} --json > {name}.json")
            for name, options in LOADS.items()
        ]
        for one in running:
            stack.callback(one.kill)
        on.run("sleep 60")  # answers to one prompt come twice
        yield
        stack.pop_all()
    for one in running:
        one.interrupt()
    on.run(NOBODY_FAILED)


STEPS = (
    Step(
        "The operator, installed by helm",
        "A real node, without DNS, without a registry; the operator is a pod of the chart's.",
        install,
    ),
    Step(
        "Three targets",
        "`examples/smollm2.yaml` with three targets and no draft"
        " (`tests/e2e/manifests/drain.yaml`).",
        apply,
    ),
    Step(
        "A rollout",
        "Requests arrive at a mean rate through the Service; every pod is replaced meanwhile.",
        roll_out,
    ),
    Step(
        "From three targets to one",
        "Under the same load. Before the number is lowered, the operator writes how many requests"
        " each pod has, where it has any.",
        scale_down,
    ),
    Step(
        "A node that is drained",
        "Under the same load one of two pods is evicted: there is one node, so the selector of"
        " `kubectl drain` leaves the other pod.",
        drain_the_node,
    ),
)
