"""Which settings need torch."""

import dataclasses

import pytest

from outrider.contract.settings import (
    LinkTransport,
    ModelSettings,
    PipelineSettings,
    Role,
    StageLink,
    WorkerSettings,
)
from outrider.worker.host.torch_extra import extra_of, need

PLAIN = WorkerSettings(role=Role.TARGET, name="tiny", model=ModelSettings(uri="file:///tiny"))


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({}, ""),
        ({"link": LinkTransport.SHARED_MEMORY}, ""),
        ({"tensor_parallel": 3}, "settings.tensor_parallel: 3 ranks"),
        ({"link": LinkTransport.DISTRIBUTED}, "settings.link: distributed"),
        (
            {"pipeline": PipelineSettings(stages=2, link=StageLink.DISTRIBUTED)},
            "settings.pipeline.link: distributed",
        ),
        ({"pipeline": PipelineSettings(stages=2)}, ""),
        ({"pipeline": PipelineSettings(link=StageLink.DISTRIBUTED)}, ""),
    ],
)
def test_what_goes_through_torch_is_named(changes: dict[str, object], named: str) -> None:
    found = need(dataclasses.replace(PLAIN, **changes))  # type: ignore[arg-type]
    assert found.startswith(named)
    assert bool(found) == bool(named)


@pytest.mark.parametrize(
    ("module", "extra"),
    [
        ("torch", "worker-torch"),
        ("triton.language", "worker-torch"),
        ("numba", "worker"),
        ("outrider.worker.nothing", ""),
        ("", ""),
    ],
)
def test_a_module_that_is_missing_comes_with_an_extra(module: str, extra: str) -> None:
    assert extra_of(module) == extra
