"""`outrider chat`: its options; the talk is `outrider.cli.chat`'s, imported when it is wanted."""

from outrider.cli.commands import options
from outrider.contract import process


def chat(
    address: options.Address = f"127.0.0.1:{process.GRPC_PORT}",
    system: options.System = None,
    max_tokens: options.TurnTokens = None,
    temperature: options.Temperature = None,
    seed: options.Seed = None,
    sampling: options.SamplingParams = None,
    stop: options.Stop = None,
    no_draft: options.NoDraft = False,
    api_key_env: options.KeyVariable = None,
    tls_ca: options.TlsRoots = None,
    tls_name: options.TlsName = None,
) -> None:
    """Talk with a service that runs already, turn by turn; `/help` shows its commands.

    Answers go to stdout; tokens per second and acceptance rate of each go to stderr, with all else.

    Examples:

    ```
    outrider chat
    outrider chat --system "You are a pirate." --temperature 0.8
    outrider chat --address llm.example.com:443 --tls-ca system
    printf 'My name is Ada.\\nWhat is my name?\\n' | outrider chat
    ```
    """
    options.silence_grpc()
    from outrider.cli.access import access_from
    from outrider.cli.chat import session
    from outrider.cli.chat.commands import Talk
    from outrider.cli.chat.conversation import Conversation
    from outrider.client import Options

    asking = Options(
        sampling=options.sampling_of(temperature, seed, sampling),
        max_tokens=max_tokens,
        stop=tuple(stop or ()),
    )
    talk = Talk(Conversation(system), speculate=not no_draft)
    access = access_from(api_key_env, tls_ca, tls_name)
    with access.blocking_client(address) as client:
        session.chat(client, asking, talk, session.typed())
