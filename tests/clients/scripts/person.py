"""The form of a structured answer, for clients that take a class."""

import pydantic


class Person(pydantic.BaseModel):
    """A person."""

    name: str
    age: int
