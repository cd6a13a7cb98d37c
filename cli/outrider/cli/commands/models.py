"""`outrider models`: its commands and options; the work is `outrider.cli.models.kept`'s."""

from typing import Annotated

import typer

from outrider.cli.commands.options import Json, option

models = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode="markdown",
    help="The models that are kept on this machine: what was prepared and downloaded.",
)
FORMS = "a folder, a .gguf file, ORGANISATION/NAME at Hugging Face, or a URI as in the YAML"


@models.command(name="list")
def list_models(json: Json = False) -> None:
    """List the models that were prepared, with their sizes.

    *Prepared* is the size in Outrider's own cache, *downloaded* the size in Hugging Face's. *In
    place* marks a model that is read from its own files, *cut off* an incomplete download. Models
    of the same content are kept once, under all of their URIs.

    Examples:

    ```
    outrider models list
    outrider models list --json
    ```
    """
    from rich.console import Console

    from outrider.cli.models import kept as kept_models
    from outrider.cli.terminal import interrupts
    from outrider.cli.terminal.text import print_json

    found = interrupts.run(kept_models.own_cache().models())
    if json:
        print_json({"models": found})
    elif found:
        kept_models.show(found, Console())
    else:
        print("No model is kept here: `outrider models pull` and `outrider serve` prepare them.")


@models.command()
def pull(
    model: Annotated[list[str], typer.Argument(metavar="MODEL", help=f"Model to fetch: {FORMS}.")],
    embeddings_from: Annotated[
        str | None,
        option(
            metavar="MODEL",
            help="Target of a draft without an embedding, such as one of `outrider distil`.",
        ),
    ] = None,
    json: Json = False,
) -> None:
    """Download models and prepare them, so that a service starts at once.

    With two models, the second is checked as a draft of the first: the output says how it drafts
    if its tokenizer is another, and the exit status is 2 if it cannot.

    A download that was interrupted continues where it was. Downloads lie in Hugging Face's cache,
    whose settings are HF_TOKEN, HF_ENDPOINT, HF_HOME and HF_HUB_CACHE.

    Examples:

    ```
    outrider models pull HuggingFaceTB/SmolLM2-135M-Instruct
    outrider models pull Qwen/Qwen3-4B Qwen/Qwen3-0.6B@main
    outrider models pull ./model.gguf
    outrider models pull ./draft --embeddings-from ./model.gguf
    ```
    """
    from rich.console import Console

    from outrider.cli.failures import BadInput
    from outrider.cli.models import kept as kept_models
    from outrider.cli.models.argument import model_uri
    from outrider.cli.models.pairing import Pairing
    from outrider.cli.terminal import interrupts
    from outrider.cli.terminal.text import print_json

    uris = [model_uri("MODEL", one) for one in model]
    lender = None if embeddings_from is None else model_uri(kept_models.LENDER, embeddings_from)
    cache = kept_models.own_cache()
    found = interrupts.run(kept_models.pulled(uris, cache, lender))
    pair = interrupts.run(cache.pairing(*uris)) if len(uris) == 2 else Pairing()
    if json:
        print_json({"models": found} | ({"drafting": str(pair)} if str(pair) else {}))
    else:
        kept_models.show(found, Console())
    if pair.refused:
        raise BadInput(f"{pair}.")
    if not json and str(pair):
        print(f"{pair}.")


@models.command()
def remove(
    model: Annotated[
        list[str], typer.Argument(metavar="MODEL", help="URI, name or id, as listed.")
    ],
    json: Json = False,
) -> None:
    """Remove models: their prepared files, and their downloads.

    Downloads are deleted from Hugging Face's cache, which other programs share: the revision of
    each model, unless another kept model was made of it, and the parts of an incomplete download.
    A model in a folder or a file of its own is not deleted. A model with several URIs is removed
    under all of them. Do not remove a model that is being served.

    Examples:

    ```
    outrider models remove hf://HuggingFaceTB/SmolLM2-135M-Instruct
    outrider models remove SmolLM2-135M-Instruct.Q4_1 3f2a9c
    ```
    """
    from outrider.cli.models import kept as kept_models
    from outrider.cli.terminal import interrupts
    from outrider.cli.terminal.amounts import size
    from outrider.cli.terminal.text import print_json

    removed = interrupts.run(kept_models.own_cache().models(model))
    if json:
        print_json({"models": removed})
        return
    for one in removed:
        total = size(one["prepared_bytes"] + one["download_bytes"])
        print(f"{', '.join(one['uris']) or one['id']} is removed: {total}")
