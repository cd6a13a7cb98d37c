"""The place of a process among the stages of a pipelined target, as its environment tells it.

What starts the stages writes the variables, and each of them reads its own. Leaves the layers of a
stage and what travels between them to the worker.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

from outrider.contract.addresses import is_address
from outrider.contract.process import ENV_STAGE, ENV_STAGES, ENV_STAGES_RESERVED
from outrider.contract.settings import SettingsError


@dataclass(frozen=True, slots=True)
class StagePlace:
    """One stage among all of its replica."""

    index: int
    """Number of the stage, from 0. Stage 0 leads: it embeds, schedules and answers requests; the
    last stage samples."""
    addresses: tuple[str, ...]
    """Where each stage listens (host:port), in their order. Records pass all of them; the first
    collects results from the last."""
    reserved: bool = False
    """True if what starts the stages keeps their ports bound: they are shared with it."""

    @classmethod
    def of(cls, environ: Mapping[str, str], stages: int) -> Self | None:
        """Read the variables of one of `stages`; None where there are none: what runs here starts
        all stages itself. Raises `SettingsError` naming the variable."""
        if ENV_STAGES not in environ:
            return None
        addresses = tuple(environ[ENV_STAGES].split(","))
        if len(addresses) != stages:
            raise SettingsError(
                f"{ENV_STAGES}: {len(addresses)} addresses are not allowed; "
                f"settings.pipeline.stages is {stages}"
            )
        if wrong := next((one for one in addresses if not is_address(one)), None):
            raise SettingsError(f"{ENV_STAGES}: {wrong!r} is not host:port")
        return cls(_index(environ, stages), addresses, ENV_STAGES_RESERVED in environ)

    @property
    def leads(self) -> bool:
        return self.index == 0

    @property
    def samples(self) -> bool:
        """True for the last stage."""
        return self.index == len(self.addresses) - 1

    @property
    def address(self) -> str:
        """Where this stage listens."""
        return self.addresses[self.index]

    @property
    def leader(self) -> str:
        """Where the first stage listens."""
        return self.addresses[0]

    @property
    def next(self) -> str | None:
        """Where this stage sends records; None for the last one."""
        return None if self.samples else self.addresses[self.index + 1]

    def variables(self) -> dict[str, str]:
        """Return the variables that `of` reads back."""
        named = {ENV_STAGE: str(self.index), ENV_STAGES: ",".join(self.addresses)}
        return named | ({ENV_STAGES_RESERVED: "1"} if self.reserved else {})


def _index(environ: Mapping[str, str], stages: int) -> int:
    text = environ.get(ENV_STAGE, "")
    if not text.isdecimal() or int(text) >= stages:
        raise SettingsError(f"{ENV_STAGE}: {text!r} is not allowed; it must be 0 to {stages - 1}")
    return int(text)
