"""Server-sent events as clients read them: a server that is silent for long sends comments."""


def data_of(stream: str) -> list[str]:
    """Data of each event, without the comments between them."""
    return [line[6:] for line in stream.split("\n") if line.startswith("data: ")]
