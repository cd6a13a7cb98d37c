"""A service as it runs here: what is said without its draft, and what it is compared with."""

import asyncio
import dataclasses
from pathlib import Path

import pytest

from outrider.cli.local.service import LocalService, by_rule
from outrider.cli.service.arrangement import Arrangement
from outrider.operator.spec import Placement, load
from tests.unit.cli.placement.test_choose import (
    ALONE,
    DEAR,
    KNOWN,
    chooser,
    service,
    start,
    two_processors,
)

__all__ = ["two_processors"]
PLAIN, DRAFTED = Arrangement(None, 2), Arrangement(Placement.COLOCATED, 2)


def local(folder: Path, mode: str = "Adaptive", *, auto: bool = True) -> LocalService:
    """A service that decodes plainly, by Auto's choice or by request."""
    options = start(folder)._replace(folder=folder / "runs")
    choice = chooser(folder).decide(DEAR) if auto else None
    return LocalService(service(mode=mode), PLAIN, options, choice)


@pytest.mark.parametrize(
    ("mode", "auto", "because"),
    [
        ("Adaptive", True, "plain decoding is the fastest on this machine"),
        ("Adaptive", False, "plain decoding, for a comparison or by --no-draft"),
        ("Disabled", False, None),
    ],
)
def test_plain_decoding_has_the_reason_of_who_took_it(
    tmp_path: Path, mode: str, auto: bool, because: str | None
) -> None:
    assert local(tmp_path, mode, auto=auto).plain_because == because


def test_plain_decoding_that_is_compared_with_is_asked_for(tmp_path: Path) -> None:
    other = local(tmp_path).other(Arrangement(None, 1), "int8")
    assert other.plain_because == "plain decoding, for a comparison or by --no-draft"
    [target] = other.plan.workers
    assert (target.settings.model.dtype, target.settings.threads) == ("int8", 1)


def test_the_log_says_why_nothing_is_drafted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asyncio.run(local(tmp_path).workers()._control_loop._pass())
    assert "drafting off: plain decoding is the fastest on this machine" in capsys.readouterr().err
    options = start(tmp_path)._replace(folder=tmp_path / "runs")
    alone = LocalService(load(ALONE), PLAIN, options)
    asyncio.run(alone.workers()._control_loop._pass())
    assert "drafting off: the service has no draft" in capsys.readouterr().err


def test_what_is_compared_is_plain_decoding_or_the_best_with_a_draft(tmp_path: Path) -> None:
    plain = local(tmp_path)
    choice = chooser(tmp_path).decide(KNOWN)
    drafted = dataclasses.replace(plain, arrangement=DRAFTED, choice=choice)
    assert drafted.counterpart() == PLAIN
    assert dataclasses.replace(plain, choice=choice).counterpart() == DRAFTED
    [(other, over_plain)] = choice.others(PLAIN, DRAFTED)
    assert other.arrangement == Arrangement(Placement.SEPARATE, 1, 1)
    assert over_plain == pytest.approx(choice.over_plain(other))
    unknown = dataclasses.replace(plain, choice=None)
    assert dataclasses.replace(unknown, arrangement=DRAFTED).counterpart() == PLAIN
    second = unknown.counterpart()
    assert second is not None
    assert second.placement is not None


def test_a_model_that_is_cut_is_placed_by_rule(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cut = by_rule(service(", parallelism: {tensor: 2}"), start(tmp_path))
    assert cut is not None
    assert cut.placement is Placement.SEPARATE
    assert "placement Auto takes Separate, 1 + 1 threads: a model is" in capsys.readouterr().err
    assert by_rule(service(), start(tmp_path)) is None


def test_a_service_keeps_what_it_names(tmp_path: Path) -> None:
    same_pod = service(draft=", placement: SamePod")
    own = by_rule(same_pod, start(tmp_path))
    assert own == Arrangement(Placement.SAME_POD, 1, 1)
    assert own is not None
    planned = LocalService(same_pod, own, start(tmp_path)).plan
    assert [worker.name for worker in planned.workers] == ["tiny-draft-0", "tiny-target-0"]
