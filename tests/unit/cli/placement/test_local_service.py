"""A service as it runs here: what is said of one without its draft."""

import asyncio
import dataclasses
from pathlib import Path

import pytest

from outrider.cli.placement.arrangement import Arrangement
from outrider.cli.placement.choose import Chooser
from outrider.cli.placement.facts import Facts
from outrider.cli.placement.local_service import LocalService, place
from outrider.cli.progress import Lines
from outrider.cli.trial import Workshop, workers
from outrider.operator.plan import PlanOptions
from outrider.operator.spec import Placement, SpeculativeService, load
from tests.unit.cli.placement.test_choose import COSTS, TEXT

LOST = Facts(costs=COSTS, over_expected={"Colocated": 0.1, "Separate": 0.1})


def placed(folder: Path, mode: str = "Adaptive", *, draft: bool = True) -> LocalService:
    """A service whose draft has lost every trial here."""
    workshop = Workshop(PlanOptions(cache=str(folder)), Lines(), folder=folder / "runs")
    service = load(TEXT % ("", "", mode))
    LOST.write(Chooser.of(service, workshop).file)
    return asyncio.run(place(service, workshop, draft=draft))


@pytest.mark.parametrize(
    ("mode", "draft", "because"),
    [
        ("Adaptive", True, "plain decoding is the fastest on this machine"),
        ("Adaptive", False, "plain decoding is asked for"),
        ("Disabled", True, None),
    ],
)
def test_plain_decoding_has_the_reason_of_who_took_it(
    tmp_path: Path, mode: str, draft: bool, because: str | None
) -> None:
    local = placed(tmp_path, mode, draft=draft)
    assert local.arrangement.placement is None
    assert local.plain_because == because


def test_plain_decoding_that_is_compared_with_is_asked_for(tmp_path: Path) -> None:
    local = placed(tmp_path)
    assert local.choice is not None
    taken = dataclasses.replace(local.choice.best, arrangement=Arrangement(Placement.SEPARATE, 1))
    own = dataclasses.replace(local, choice=dataclasses.replace(local.choice, best=taken))
    other = own.other(Arrangement(None, 1), "int8")
    assert other.plain_because == "plain decoding is asked for"


def test_the_log_says_why_nothing_is_drafted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    local = placed(tmp_path)
    asyncio.run(local.workers()._steering._pass())
    assert "drafting off: plain decoding is the fastest on this machine" in capsys.readouterr().err


def test_a_service_without_a_draft_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    alone: SpeculativeService = load(TEXT.split("  draft:")[0] % "")
    workshop = Workshop(PlanOptions(cache=str(tmp_path)), Lines(), folder=tmp_path / "runs")
    asyncio.run(workers(alone, workshop)._steering._pass())
    assert "drafting off: the service has no draft" in capsys.readouterr().err
