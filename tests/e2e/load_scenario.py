"""Drafting that goes off and comes back by load alone.

A draft inside its target gains more with one request than with sixteen. The service asks for a gain
between the two; nobody edits it meanwhile, and the target's own switch decides. Takes the first
step and the service of `scenario`.
"""

from tests.e2e.recording import Recording
from tests.e2e.scenario import ADDRESS, SERVICE, Step, install

GAIN = "{.status.speculation.gainPercent}"
FEW, MANY = 1, 16
"""Requests at once."""
LEAST_GAIN = 120
"""Gain, in percent, below which `manifests/colocated.yaml` turns drafting off."""


def apply(on: Recording) -> None:
    """The service drafts in one pod, and asks for a gain of a fifth."""
    on.run("kubectl apply -f models.yaml")
    on.run("kubectl apply -k .")
    on.run(f"kubectl patch specsvc/{SERVICE} --type merge --patch-file colocated.yaml")
    on.run(f"kubectl wait specsvc/{SERVICE} --for=condition=Ready --timeout=25m")
    on.run(f"kubectl rollout status deployment/{SERVICE}-target --timeout=25m")
    on.run(f"kubectl get specsvc/{SERVICE} -o yaml | sed -n '/^  speculation:/,/^  [t-z]/p'")


def gain(on: Recording) -> None:
    """One request at once is worth drafting for."""
    _under(on, FEW, _until("-ge"))


def lose(on: Recording) -> None:
    """Sixteen at once are not."""
    _under(on, MANY, _until("-lt"))


def gain_again(on: Recording) -> None:
    """One at once is worth it again."""
    gain(on)
    on.run("kubectl events --for specsvc/" + SERVICE)


def _until(compared: str) -> str:
    """Return the command that waits until the gain compares so with the least."""
    percent = f"0$(kubectl get specsvc/{SERVICE} -o jsonpath='{GAIN}')"
    return f"until [ {percent} {compared} {LEAST_GAIN} ]; do sleep 5; done"


def _under(on: Recording, requests: int, waits: str) -> None:
    """Runs a command that waits, under load."""
    load = on.background(
        f"outrider bench serve --url http://{ADDRESS}:8000/v1 --concurrency {requests} "
        "--seconds 1800 --check-text"
    )
    try:
        on.run(waits)
        on.run("kubectl get specsvc -o wide")
    except BaseException:
        load.kill()
        raise
    load.interrupt()


STEPS = (
    Step(
        "The operator, installed by helm",
        "A real node, without DNS, without a registry; the operator is a pod of the chart's.",
        install,
    ),
    Step(
        "A service that asks for a gain of a fifth",
        "The draft runs inside the target (`tests/e2e/manifests/colocated.yaml`).",
        apply,
    ),
    Step("One request at once", "Drafting gains more than a fifth, and stays on.", gain),
    Step(
        "Sixteen requests at once",
        "Nothing is edited: the gain falls below a fifth, and the target decodes plainly.",
        lose,
    ),
    Step(
        "One request at once, again",
        "Nothing is edited: the target tries again by itself, and drafts.",
        gain_again,
    ),
)
