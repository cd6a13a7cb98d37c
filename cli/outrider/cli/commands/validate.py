"""`outrider validate`: its options; checking is `outrider.cli.service`'s."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from outrider.cli.commands.options import Json
from outrider.cli.failures import BadInput
from outrider.cli.terminal.text import STDIN, read_stdin, read_text


def validate(
    files: Annotated[
        list[Path], typer.Argument(metavar="FILE…", help="YAML of services; - is standard input.")
    ],
    json: Json = False,
) -> None:
    """Check the YAML of services, and report each problem with its path and the allowed values.

    All files are checked, and all their problems are reported at once. In a file with several
    documents each one is named by its number and line.

    Nothing is served or downloaded. For models that are kept on this machine, the output also
    says which tokens end an answer, how requests are sampled by default, and how a draft with
    another tokenizer drafts; a draft that cannot be used is a problem. Settings that matter in a
    cluster only are listed and are no problem. What `outrider run` refuses on this machine is
    listed too, such as a file:// path that does not exist here: in a cluster it is a path in the
    pod. The exit status is 2 if there is a problem. --json prints one object a file, each on a
    line; a problem has the line of its field.

    Examples:

    ```
    outrider validate examples/smollm2.yaml
    outrider validate services/*.yaml --json
    outrider serve Qwen/Qwen3-0.6B --print-yaml | outrider validate -
    ```
    """
    texts, problems = _read(files)
    if not texts:
        raise BadInput("\n".join(problems))
    from outrider.cli.service.report import report
    from outrider.cli.terminal.text import print_json

    reports = [report(file, text) for file, text in texts]
    if json:
        for one in reports:
            print_json(one.as_json())
        if not problems and any(one.errors for one in reports):
            raise typer.Exit(BadInput.status)
    else:
        for one in reports:
            one.show()
            problems += one.errors
    if problems:
        raise BadInput("\n".join(problems))


def _read(files: Sequence[Path]) -> tuple[list[tuple[Path, str]], list[str]]:
    """Return the text of each file that can be read, and a line for each other one."""
    texts: list[tuple[Path, str]] = []
    problems = []
    for file in files:
        try:
            text = read_stdin(sys.stdin.buffer) if str(file) == STDIN else read_text(file)
            texts.append((file, text))
        except BadInput as error:
            problems.append(str(error))
    return texts, problems
