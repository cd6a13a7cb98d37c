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
    """Check the YAML of services; name problems with their paths and what is allowed.

    All problems of all files are named at once: those of fields, and those of rules between fields
    that are right. Of several documents in a file each is checked, and named by its number and
    first line.

    Nothing is served or fetched. Of models that are kept on this machine it says where their
    answers end, how they are sampled where a request is silent, and how a draft of another
    tokenizer drafts; one that cannot draft is a problem. What means something in a cluster only is
    said, and is none. The exit status is 2 where there is a problem. --json prints an object a
    file, each on a line.

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
