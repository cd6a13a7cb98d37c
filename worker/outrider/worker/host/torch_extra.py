"""The extra `worker-torch`: which settings need it, and what to install where it is missing.

One rank on a CPU computes and talks without torch. Ranks that add up, and links that go through
torch.distributed, need it; so do GPUs, of which `device` says what is missing. Imports no torch.
"""

import importlib.util

from outrider.contract.settings import LinkTransport, SettingsError, StageLink, WorkerSettings
from outrider.contract.version import missing_extra

PACKAGE = "torch"
EXTRA = "worker-torch"
MISSING = f"{PACKAGE} is not installed; {missing_extra(EXTRA)}"


def missing() -> str:
    """Say what is missing and what installs it; empty if torch is there."""
    return "" if importlib.util.find_spec(PACKAGE) else MISSING


def check(settings: WorkerSettings) -> None:
    """Raise `SettingsError` for settings that need torch where it is missing."""
    reason = need(settings)
    if reason and (lack := missing()):
        raise SettingsError(f"{reason}, and {lack}")


def extra_of(module: str) -> str:
    """Name the extra that brings a module; empty for one of Outrider's own, which is a fault."""
    package = module.partition(".")[0]
    if package in ("", "outrider"):
        return ""
    return EXTRA if package in (PACKAGE, "triton") else "worker"


def need(settings: WorkerSettings) -> str:
    """Name a setting for which a worker loads torch on a CPU; empty if there is none."""
    if settings.tensor_parallel > 1:
        ranks = settings.tensor_parallel
        return f"settings.tensor_parallel: {ranks} ranks add up by torch.distributed"
    if settings.link is LinkTransport.DISTRIBUTED:
        return f"settings.link: {settings.link} goes through torch.distributed"
    pipeline = settings.pipeline
    if pipeline.stages > 1 and pipeline.link is StageLink.DISTRIBUTED:
        return f"settings.pipeline.link: {pipeline.link} goes through torch.distributed"
    return ""
