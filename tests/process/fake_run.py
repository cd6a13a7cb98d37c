"""`outrider run` with fake workers: python fake_run.py FILE CACHE [PROMPT [MANNER]]."""

import sys
from pathlib import Path

from outrider.cli import app
from outrider.cli.run.prompts import PromptSet
from outrider.cli.run.run import RunOptions, run
from outrider.cli.service.file import read_service
from outrider.cli.terminal import interrupts
from outrider.operator.plan import PlanOptions

WORKER = (sys.executable, str(Path(__file__).with_name("fake_worker.py")))


def main(file: str, cache: str, prompt: str = "", manner: str = "") -> None:
    """Runs; a prompt answers as JSON and exits, none serves on a free port.

    The manner has the words `compare` and `no-draft`, or one, or none.
    """
    words = manner.split()
    questions = PromptSet(prompts=[prompt], compare="compare" in words) if prompt else None

    def options() -> RunOptions:
        return RunOptions(
            service=read_service(Path(file)),
            plan=PlanOptions(cache=cache),
            questions=questions,
            as_json=bool(prompt),
            draft="no-draft" not in words,
            grpc_port=0,
            http_port=None if prompt else 0,
            worker_command=WORKER,
            run_folder=Path(cache) / "runs",
        )

    app.exit_with_words(lambda: interrupts.run(run(options())))


if __name__ == "__main__":
    main(*sys.argv[1:])
