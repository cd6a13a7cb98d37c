"""A conversation with a service, typed line by line: `outrider chat`.

    session      the loop: a line in, an answer or a command's words out
    served       a service that runs beside a chat
    commands     lines that begin with a slash
    conversation what was said, as the model is told it and as a file holds it

Leaves options to `commands.chat` and credentials to `access`.
"""
