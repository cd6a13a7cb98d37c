"""`outrider validate`: its options; checking is `outrider.cli.validation`'s."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from outrider.cli.failures import BadInput
from outrider.cli.options import Json
from outrider.cli.standard_input import STDIN, read_stdin
from outrider.cli.text_file import read_text


def validate(
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="YAML of a service; - is standard input.")
    ],
    json: Json = False,
) -> None:
    """Check the YAML of a service: every problem at once, with its path and what is allowed.

    Nothing is started or fetched. The exit status is 2 where there is a problem; what means
    something in a cluster only is said and is none.

    Examples:

    ```
    outrider validate examples/smollm2.yaml
    outrider validate service.yaml --json
    outrider serve Qwen/Qwen3-0.6B --print-yaml | outrider validate -
    ```
    """
    text = read_stdin(sys.stdin.buffer) if str(file) == STDIN else read_text(file)
    from outrider.cli.json_output import print_json
    from outrider.cli.validation import check

    found = check(text)
    if json:
        print_json({"file": str(file)} | found.as_json())
        if found.errors:
            raise typer.Exit(BadInput.status)
        return
    if found.errors:
        raise BadInput("\n".join(f"{file}: {problem}" for problem in found.errors))
    print(f"{file}: the service {found.name} is valid")
    for note in found.notes:
        print(f"{file}: {note}")
