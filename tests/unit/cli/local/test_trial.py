"""Which services a trial runs."""

from pathlib import Path

import pytest

from outrider.cli.failures import WorkerFailed
from outrider.cli.local.trial import does_not_run
from outrider.cli.service.arrangement import Arrangement, arrange, one_target
from outrider.operator.spec import Placement, SpeculationMode, load

TEXT = """
apiVersion: outrider.dev/v1alpha1
kind: SpeculativeService
metadata: {name: tiny}
spec:
  target: {model: {uri: "file:///target"}, replicas: 3}
  draft: {model: {uri: "file:///draft"}}
  speculation: {mode: %s}
"""


@pytest.mark.parametrize(
    ("mode", "placement", "tried"),
    [
        ("Adaptive", Placement.SEPARATE, SpeculationMode.ADAPTIVE),
        ("Static", Placement.COLOCATED, SpeculationMode.STATIC),
        ("Disabled", Placement.SEPARATE, SpeculationMode.ADAPTIVE),
        ("Static", None, SpeculationMode.DISABLED),
    ],
)
def test_a_trial_drafts_where_it_has_a_draft_and_never_without(
    mode: str, placement: Placement | None, tried: SpeculationMode
) -> None:
    spec = arrange(one_target(load(TEXT % mode)), Arrangement(placement, 3, 2)).spec
    assert spec.speculation.mode is tried
    assert spec.draft is not None
    assert placement is None or spec.draft.placement is placement
    assert spec.target.replicas == 1
    assert spec.target.engine.threads == 3
    assert spec.draft.engine.threads == (2 if placement is Placement.SEPARATE else 1)


def test_a_service_without_a_draft_keeps_the_sources_that_need_none() -> None:
    own = load(TEXT % "Adaptive")
    alone = own.model_copy(update={"spec": own.spec.model_copy(update={"draft": None})})
    speculation = arrange(alone, Arrangement(None, 2)).spec.speculation
    assert speculation == alone.spec.speculation
    assert speculation.mode is SpeculationMode.ADAPTIVE


def test_of_a_log_s_end_the_first_line_names_the_log_alone(tmp_path: Path) -> None:
    (tmp_path / "log").write_text("one\ntwo\n")
    error = WorkerFailed("target", 3, tmp_path / "log")
    said = does_not_run(Arrangement(None, 2), error)
    assert said.startswith("plain, 2 threads ")
    assert "status 3" in said
    assert said.endswith(str(tmp_path / "log"))
