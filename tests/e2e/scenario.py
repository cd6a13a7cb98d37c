"""What happens on the node, step by step, each with a word on what it shows.

Every step fails by a command that ends with another status than 0. Leaves the node to `node` and
keeping what is said to `recording`.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tests.e2e.recording import Recording

SERVICE = "smollm2-135m-instruct"
DRAFTS = f"outrider.dev/service={SERVICE},outrider.dev/role=draft"
TARGETS = f"outrider.dev/service={SERVICE},outrider.dev/role=target"
PROMPT = "Write a long story about a lighthouse keeper and the sea."
ASK = f'outrider generate --max-tokens 600 "{PROMPT}"'
ADDRESS = f"$(kubectl get service {SERVICE} -o jsonpath='{{.spec.clusterIP}}')"
"""Address of the service, for a shell; a cluster with DNS has a name for it."""
EVERYTHING = "deployments,replicasets,pods,services,configmaps,serviceaccounts,networkpolicies"


@dataclass(frozen=True, slots=True)
class Step:
    """One section of the recording."""

    title: str
    words: str
    do: Callable[[Recording], None]


def install(on: Recording) -> None:
    """The operator's pod runs."""
    on.run("kubectl get nodes -o wide")
    on.run(
        "helm install outrider charts/outrider --namespace outrider-system --create-namespace \\\n"
        "  --values operator.yaml --wait --timeout 10m"
    )
    on.run("kubectl get pods --all-namespaces -o wide")


def apply(on: Recording) -> None:
    """Target and draft are there and linked."""
    on.run("kubectl apply -f models.yaml")
    on.run("kubectl apply -k .")
    on.run(f"kubectl wait specsvc/{SERVICE} --for=condition=Ready --timeout=25m")
    on.run(f"kubectl wait specsvc/{SERVICE} --for=condition=LinkEstablished --timeout=25m")
    on.run(f"kubectl wait specsvc/{SERVICE} --for=condition=SpeculationActive --timeout=10m")
    on.run("kubectl get specsvc,pods,services -o wide")


def answer(on: Recording) -> None:
    """The text of the pods is that of the target alone."""
    on.run("sed 's/mode: Adaptive/mode: Disabled/' examples/smollm2.yaml > plain.yaml")
    on.run(
        f"""outrider run -f plain.yaml --dtype int8 --json --max-tokens 600 \\
  --prompt "{PROMPT}" > plain.json
python -c 'import json; print(json.load(open("plain.json"))["answers"][0]["text"])' > plain.txt"""
    )
    on.run(f"{ASK} \\\n  --address {ADDRESS}:50051 > streamed.txt")
    on.run("wc -w plain.txt streamed.txt; diff plain.txt streamed.txt && echo 'the same text'")
    on.run("head -c 300 streamed.txt")


def lose_the_draft(on: Recording) -> None:
    """A draft's end costs no token."""
    on.run(
        f"""touch cut.txt
{ASK} \\
  --address {ADDRESS}:50051 > cut.txt &
until [ "$(wc -c < cut.txt)" -gt 100 ]; do sleep 0.02; done
kubectl delete pods -l {DRAFTS} --force --grace-period=0
echo "$(wc -c < cut.txt) of $(wc -c < plain.txt) bytes had come when the draft was gone"
wait $!
diff plain.txt cut.txt && echo 'the same text'"""
    )
    on.run(f"kubectl wait specsvc/{SERVICE} --for=condition=DraftAvailable --timeout=10m")
    on.run(f"kubectl wait specsvc/{SERVICE} --for=condition=SpeculationActive --timeout=10m")
    on.run("kubectl get specsvc,pods")


def turn_off_and_on(on: Recording) -> None:
    """Drafting goes, its hardware goes, the operator goes; all come back."""
    load = on.background(
        f"outrider bench serve --url http://{ADDRESS}:8000/v1 --concurrency 1 --seconds 1800 "
        "--check-text"
    )
    try:
        _turn_off(on)
        _turn_on(on)
    except BaseException:
        load.kill()
        raise
    load.interrupt()
    on.run("kubectl events --for specsvc/" + SERVICE)


def _turn_off(on: Recording) -> None:
    on.run(_thresholds(900, 1000))
    on.run(f"kubectl wait specsvc/{SERVICE} --for=condition=SpeculationActive=False --timeout=10m")
    on.run("kubectl get specsvc,pods")
    on.run(
        "kubectl delete pods --namespace outrider-system -l app.kubernetes.io/component=operator"
    )
    on.run(f"kubectl wait pods -l {DRAFTS} --for=delete --timeout=10m")
    on.run("kubectl get specsvc,deployments,pods")


def _turn_on(on: Recording) -> None:
    on.run(_thresholds(0, 1))
    on.run(f"kubectl wait pods -l {DRAFTS} --for=create --timeout=10m")
    on.run(f"kubectl wait specsvc/{SERVICE} --for=condition=SpeculationActive --timeout=10m")
    on.run("kubectl get specsvc")
    on.run(
        f"kubectl wait specsvc/{SERVICE} --timeout=10m \\\n"
        "  --for=jsonpath='{.status.conditions[?(@.type==\"SpeculationActive\")].reason}'=Active"
    )
    on.run("kubectl get specsvc,deployments,pods")


def _thresholds(off: int, on: int) -> str:
    return (
        f'kubectl patch specsvc/{SERVICE} --type merge --patch \'{{"spec": {{"speculation":\n'
        f'  {{"disable": {{"gainBelowPercent": {off}}}, '
        f'"enable": {{"gainAbovePercent": {on}}}}}}}}}\''
    )


def share_a_pod(on: Recording) -> None:
    """The draft moves into its target's pod; there its end costs no token, and the pod is ready."""
    on.run(f"kubectl patch specsvc/{SERVICE} --type merge --patch-file same-pod.yaml")
    on.run(f"kubectl wait pods -l {DRAFTS} --for=delete --timeout=10m")
    on.run(f"kubectl rollout status deployment/{SERVICE}-target --timeout=25m")
    on.run(until_pods(1))
    on.run(f"kubectl wait specsvc/{SERVICE} --for=condition=LinkEstablished --timeout=25m")
    on.run(f"kubectl wait specsvc/{SERVICE} --for=condition=SpeculationActive --timeout=10m")
    on.run("kubectl get specsvc,pods -o wide")
    on.run(
        f"""pod=$(kubectl get pods -l {TARGETS} -o name)
touch shared.txt
{ASK} \\
  --address {ADDRESS}:50051 > shared.txt &
until [ "$(wc -c < shared.txt)" -gt 100 ]; do sleep 0.02; done
{signal_to("draft", "KILL", "[s]erve")}
echo "$(wc -c < shared.txt) of $(wc -c < plain.txt) bytes had come when the draft was gone"
wait $!
diff plain.txt shared.txt && echo 'the same text'
kubectl get $pod"""
    )
    on.run(f"kubectl wait specsvc/{SERVICE} --for=condition=DraftAvailable --timeout=10m")
    on.run(f"kubectl logs -l {TARGETS} -c draft --tail 8; kubectl get specsvc,pods")
    on.run(f"kubectl logs -l {TARGETS} -c main --tail -1 | grep 'goes through shared_memory'")


def stop_the_engine(on: Recording) -> None:
    """The kubelet starts a container anew whose engine does not go on."""
    ready = f"kubectl wait pods -l {TARGETS} --for=condition=Ready"
    on.run(
        f"""pod=$(kubectl get pods -l {TARGETS} -o name)
{signal_to("main", "STOP", "[e]ngine")}
kubectl wait $pod --timeout=5m \\
  --for=jsonpath='{{.status.containerStatuses[?(@.name=="main")].restartCount}}'=1
kubectl events --for $pod | grep -E 'Unhealthy|Killing'"""
    )
    on.run(f"{ready} --timeout=10m")
    on.run(f"kubectl wait specsvc/{SERVICE} --for=condition=Ready --timeout=10m")
    on.run(
        f"""{ASK} \\
  --address {ADDRESS}:50051 > again.txt
diff plain.txt again.txt && echo 'the same text'"""
    )
    on.run("kubectl get specsvc,pods")


def signal_to(container: str, signal: str, process: str) -> str:
    """Return the command that sends a signal to a worker's process; images have no `ps`. A letter
    in brackets keeps the pattern from finding the shell that looks for it."""
    return f"""kubectl exec $pod -c {container} -- /bin/sh -c '
  for folder in /proc/[0-9]*; do
    if tr "\\0" " " < $folder/cmdline | grep -q "worker {process}"; then
      kill -{signal} ${{folder#/proc/}}
    fi
  done'"""


def until_pods(count: int) -> str:
    """Return the command that waits for so many target pods, those that end included."""
    pods = f"kubectl get pods -l {TARGETS} -o name | wc -l"
    return f"until [ $({pods}) -eq {count} ]; do sleep 1; done"


def delete(on: Recording) -> None:
    """Nothing stays."""
    on.run(f"kubectl delete specsvc/{SERVICE} --timeout=5m")
    on.run(
        f"kubectl wait pods -l outrider.dev/service={SERVICE} --for=delete --timeout=5m\n"
        f'until [ -z "$(kubectl get {EVERYTHING} \\\n'
        f'  -l outrider.dev/service={SERVICE} -o name)" ]; do sleep 1; done'
    )
    on.run(f"kubectl get {EVERYTHING} \\\n  -l outrider.dev/service={SERVICE}")
    on.run("kubectl logs --namespace outrider-system deployment/outrider-operator --tail 40")


STEPS = (
    Step(
        "The operator, installed by helm",
        "A real node, without DNS, without a registry; the operator is a pod of the chart's.",
        install,
    ),
    Step(
        "A service",
        "`examples/smollm2.yaml` with what a run of minutes changes"
        " (`tests/e2e/manifests/service.yaml`): a target and a draft start and link.",
        apply,
    ),
    Step(
        "An answer, from outside the pods",
        "The text is compared with that of one process on this machine that never drafts.",
        answer,
    ),
    Step(
        "The draft's pod is deleted mid-stream",
        "The stream goes on, and the text is the same.",
        lose_the_draft,
    ),
    Step(
        "Drafting goes off and comes back",
        "Under load, more gain is asked for than there can be: the control loop turns drafting"
        " off, drains the draft and takes its pod away. The operator's pod is deleted meanwhile."
        " Then any gain will do: a draft is started, a probe shows its gain, drafting is back.",
        turn_off_and_on,
    ),
    Step(
        "The draft moves into its target's pod",
        "With `draft.placement: SamePod` it is a container beside the target's, and their link goes"
        " through memory. Its worker is killed mid-stream: the text is the same, the pod stays"
        " ready, no container restarts, and the worker comes back.",
        share_a_pod,
    ),
    Step(
        "The target's engine is stopped",
        "`SIGSTOP`: the process is there and does nothing. The worker's `/healthz` says so, the"
        " kubelet starts its container anew, and the text is the same.",
        stop_the_engine,
    ),
    Step("The service is deleted", "Nothing stays behind.", delete),
)


def play(on: Recording, steps: Sequence[Step] = STEPS) -> None:
    """All steps; raises `CommandFailed` at the first that fails."""
    for number, step in enumerate(steps, start=1):
        on.section(f"{number}. {step.title}", step.words)
        step.do(on)
