"""`outrider validate`: its options; checking is `outrider.cli.service.validation`'s."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from outrider.cli.commands.options import Json
from outrider.cli.failures import BadInput, Failure
from outrider.cli.terminal.text import STDIN, read_stdin, read_text


def validate(
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="YAML of services; - is standard input.")
    ],
    json: Json = False,
) -> None:
    """Check the YAML of services; name problems with their paths and what is allowed.

    YAML is checked first, then fields, then rules between fields: of the first of these that has
    problems, all are named.

    Nothing is served or fetched; of models that are kept on this machine it says where their
    answers end, how they are sampled where a request is silent, and how a draft of another
    tokenizer drafts; one that cannot is a problem. Of several documents each is
    checked, and named by its number and first line. The exit status is 2 where there is a problem;
    what means something in a cluster only is said and is none.

    Examples:

    ```
    outrider validate examples/smollm2.yaml
    outrider validate service.yaml --json
    outrider serve Qwen/Qwen3-0.6B --print-yaml | outrider validate -
    ```
    """
    text = read_stdin(sys.stdin.buffer) if str(file) == STDIN else read_text(file)
    from outrider.cli.models.kept import own_shelf
    from outrider.cli.service.answers import answers_of, in_words, kept_of, with_pairings
    from outrider.cli.service.validation import as_json, check
    from outrider.cli.terminal import interrupts
    from outrider.cli.terminal.text import print_json

    found = check(text, str(file.absolute().parent))
    try:
        kept = interrupts.run(kept_of(found, own_shelf()))
        answers = answers_of(found, kept)
        found = interrupts.run(with_pairings(found, kept, own_shelf()))
    except Failure as error:  # the YAML is right or wrong all the same
        print(f"{file}: what is kept of its models is not known: {error}", file=sys.stderr)
        answers = []
    wrong = any(one.errors for one in found)
    if json:
        print_json({"file": str(file)} | as_json(found) | {"models": answers})
        if wrong:
            raise typer.Exit(BadInput.status)
        return
    errors = []
    for one in found:
        where = str(file)
        if len(found) > 1 and one.line is not None:
            where += f": document {one.number}, line {one.line}"
        for warning in one.warnings:
            print(f"{where}: {warning}", file=sys.stderr)
        errors += [f"{where}: {problem}" for problem in one.errors]
        if not one.errors:
            print(f"{where}: the service {one.name} is valid")
            own = [in_words(model) for model in answers if model["document"] == one.number]
            for note in (*one.notes, *own):
                print(f"{where}: {note}")
    if wrong:
        raise BadInput("\n".join(errors))
