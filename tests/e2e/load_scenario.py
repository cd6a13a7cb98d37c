"""Drafting that goes off and comes back by load alone, with default thresholds.

A draft inside its target gains with one request and not with sixteen: nobody edits the service
meanwhile, and the target's own switch decides. Takes the first step and the service of `scenario`.
"""

from tests.e2e.recording import Recording
from tests.e2e.scenario import ADDRESS, SERVICE, Step, install

GAIN = "{.status.speculation.gainPercent}"
FEW, MANY = 1, 16
"""Requests at once."""
BREAK_EVEN = 105
"""Gain, in percent, under which a target decodes plainly where nothing is written."""


def apply(on: Recording) -> None:
    """The service drafts in one pod, with default thresholds."""
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
    """Return the command that waits until the gain compares so with break-even."""
    percent = f"0$(kubectl get specsvc/{SERVICE} -o jsonpath='{GAIN}')"
    return f"until [ {percent} {compared} {BREAK_EVEN} ]; do sleep 5; done"


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
        "A service with default thresholds",
        "The draft runs inside the target (`tests/e2e/manifests/colocated.yaml`).",
        apply,
    ),
    Step("One request at once", "Drafting gains more than break-even, and stays on.", gain),
    Step(
        "Sixteen requests at once",
        "Nothing is edited: the gain falls under break-even, and the target decodes plainly.",
        lose,
    ),
    Step(
        "One request at once, again",
        "Nothing is edited: the target tries again by itself, and drafts.",
        gain_again,
    ),
)
