"""The `outrider` command: its commands, and what their errors say.

Each command's options are in `commands`, which import what does the work when it is wanted: help
takes a fifth of the time. Imports no torch: workers are processes.
"""

import re
import sys
from collections.abc import Callable, Sequence
from typing import Annotated, Any, NoReturn

import typer
from typer.core import TyperGroup

from outrider.cli.commands.bench import bench
from outrider.cli.commands.chat import chat
from outrider.cli.commands.demo import demo
from outrider.cli.commands.distil import distil
from outrider.cli.commands.doctor import doctor
from outrider.cli.commands.generate import generate
from outrider.cli.commands.models import models
from outrider.cli.commands.profile import profile
from outrider.cli.commands.run import run
from outrider.cli.commands.serve import serve
from outrider.cli.commands.simulate import simulate
from outrider.cli.commands.top import top
from outrider.cli.commands.validate import validate
from outrider.cli.failures import INTERRUPTED, BadInput, Failure, Interrupted, stop
from outrider.contract.version import version as own_version

CONTEXT = {
    "help_option_names": ["-h", "--help"],
    "max_content_width": 100,
    "auto_envvar_prefix": "OUTRIDER",
}
UsageError: Any = typer.BadParameter.__base__
"""Base of the errors of all options and arguments; it has no public name."""
PYDANTIC_PREFIX = "Value error, "
"""What pydantic, with which typer reads options, puts before a refusal."""
NOT_A_NUMBER = re.compile(r"Input should be a valid (integer|number), .*")
"""What pydantic says of text that is not a number."""

HINTS = {
    "Socket closed": "; a target with TLS needs --tls-ca FILE, or --tls-ca system",
    "Connection refused": "; `outrider serve MODEL` starts one, --address names one elsewhere",
    "http1.x server": "; that port speaks HTTP: --address takes the one after `gRPC at`",
    "WRONG_VERSION_NUMBER": "; a target without TLS wants no --tls-ca",
}
"""Advice by a part of what gRPC says of a target that cannot be reached."""


class Commands(TyperGroup):
    """Commands whose errors of options are plain words: what would draw a frame around them takes
    half as long to import as all else that such an error needs."""

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        windows_expand_args: bool = True,
        **extra: Any,
    ) -> Any:
        """Run one command; exit with its status if `standalone_mode`, as typer does."""
        try:
            status = super().main(
                args, prog_name, complete_var, False, windows_expand_args, **extra
            )
        except UsageError as error:
            if not standalone_mode:
                raise
            words = error.message.removeprefix(PYDANTIC_PREFIX)
            error.message = NOT_A_NUMBER.sub(_not_a_number, words) + _variable(error)
            error.show()
            sys.exit(error.exit_code)
        if not standalone_mode:
            return status
        if status == INTERRUPTED:  # typer's, of a KeyboardInterrupt
            stop()
        sys.exit(status or 0)


def _not_a_number(said: re.Match[str]) -> str:
    return f"the value is not a {'whole ' if said[1] == 'integer' else ''}number."


def _variable(error: Any) -> str:
    """Name the environment variable that a refused value is from; empty: it is from none."""
    name = getattr(getattr(error, "param", None), "name", None)
    if name is None or error.ctx is None:
        return ""
    source = error.ctx.get_parameter_source(name)
    if source is None or source.name != "ENVIRONMENT":
        return ""
    return f" It is from the environment variable {error.ctx.auto_envvar_prefix}_{name.upper()}."


app = typer.Typer(
    cls=Commands,
    no_args_is_help=True,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    context_settings=CONTEXT,
)
COMMANDS: tuple[Callable[..., None], ...] = (
    *(demo, serve, chat, generate, run),
    *(validate, doctor, top, profile, simulate, distil),
)
"""In the order in which help lists them."""
for command in COMMANDS:
    app.command()(command)
app.add_typer(models, name="models")
app.add_typer(bench, name="bench")


def _version(wanted: bool) -> None:
    if wanted:
        print(f"outrider {own_version()}")
        raise typer.Exit


@app.callback()
def outrider(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Speculative decoding with the draft and the target in separate processes."""


def main() -> None:
    """Entry point: runs one command and exits with its status."""
    exit_with_words(app)


def exit_with_words(command: Callable[[], object]) -> None:
    """Run `command`; its errors for people become words on stderr and an exit status."""
    try:
        command()
    except Interrupted as signal:
        sys.exit(signal.status)
    except KeyboardInterrupt:
        stop()
    except Failure as error:
        _fail(error)
    except OSError as error:  # a full or read-only disk, most often
        if _is_unforeseen(error):
            raise
        where = f"{error.filename}: " if error.filename else ""
        words = error.strerror or str(error) or type(error).__name__
        _fail(Failure(f"{where}{words}"))
    except Exception as error:
        if (failure := _of_a_call(error)) is None:
            raise
        _fail(failure)


def _of_a_call(error: Exception) -> Failure | None:
    """Return the failure that an error of a call to a target is; None: it is no such error."""
    from outrider.client.errors import ClientError, InvalidRequest, Unauthenticated, Unavailable

    words = str(error)
    match error:
        case Unavailable():
            hint = next((hint for said, hint in HINTS.items() if said in words), "")
            return Failure(f"cannot reach the target, or lost it: {words}{hint}")
        case Unauthenticated():
            return BadInput(f"{words}; --api-key-env VARIABLE says where it is")
        case InvalidRequest():
            return BadInput(words)
        case ClientError():
            return Failure(words)
    return None


def _is_unforeseen(error: OSError) -> bool:
    """True if a wait or a connection failed of which somebody should have known what to say: its
    traceback is wanted. A reader of stdout that has left is none."""
    broken = isinstance(error, TimeoutError | ConnectionError)
    return broken and not isinstance(error, BrokenPipeError) and error.filename is None


def _fail(failure: Failure) -> NoReturn:
    print(f"outrider: {failure}", file=sys.stderr)
    sys.exit(failure.status)
