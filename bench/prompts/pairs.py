"""Prompts of `bench.pairs`: code to write, edits of code, and chats, all written for it."""

from bench.prompts.sources import CHANGES, CODE
from bench.record.report import Prompt

TASKS = (
    "Write a Python function that returns the n-th Fibonacci number without recursion.",
    "Write a Python function that checks whether a string is a palindrome, ignoring case.",
    "Write a Python class for a bank account with deposit, withdraw and balance.",
    "Write a Python function that merges two sorted lists into one sorted list.",
    "Write a Python function that counts the words in a text file.",
    "Write a Python decorator that prints how long a function took.",
    "Write a Python function that finds all prime numbers below n with a sieve.",
    "Write a SQL query that lists the ten customers with the largest total of orders.",
    "Write a JavaScript function that removes duplicates from an array of objects by id.",
    "Write a Go function that reads a JSON file into a map and returns an error if it fails.",
    "Write a Bash script that deletes log files older than seven days in a folder.",
    "Write a Python function that parses a CSV line with quoted fields.",
)
STACK = """class Stack:
    def __init__(self):
        self.items = []

    def push(self, item):
        self.items.append(item)

    def pop(self):
        return self.items.pop()

    def peek(self):
        return self.items[-1]

    def size(self):
        return len(self.items)
"""
STACK_WISH = (
    "Make pop and peek raise an IndexError with a message if the stack is empty. "
    "Show the whole class."
)
CACHE = """import json
from pathlib import Path


class Cache:
    def __init__(self, path):
        self.path = Path(path)
        self.values = {}

    def load(self):
        with open(self.path) as file:
            self.values = json.load(file)

    def save(self):
        with open(self.path, "w") as file:
            json.dump(self.values, file)

    def get(self, key):
        return self.values.get(key)

    def set(self, key, value):
        self.values[key] = value
        self.save()
"""
CACHE_WISH = "Add type hints to every method. Show the whole file."
CHATS = (
    "What is the difference between a process and a thread?",
    "Why does a binary search need a sorted list?",
    "Explain what a database index is, and what it costs.",
    "What happens when I type an address into a browser?",
    "Give me five tips for code reviews.",
    "When should I use a queue between two services?",
)


def code(count: int) -> list[Prompt]:
    """Return prompts for code of which nothing is written yet."""
    return [Prompt(f"code {at}", "code", task) for at, task in enumerate(TASKS[:count])]


def edits(count: int) -> list[Prompt]:
    """Return prompts to change code that stands below them."""
    whole = "Answer with nothing but the whole result."
    asked = [(f"{change} {whole}", CODE[name]) for name, change in CHANGES]
    asked += [(STACK_WISH, STACK), (CACHE_WISH, CACHE)]
    return [
        Prompt(f"edit {at}", "edit", f"{wish}\n\n```\n{text}```")
        for at, (wish, text) in enumerate(asked[:count])
    ]


def chats(count: int) -> list[Prompt]:
    """Return questions that are answered in prose."""
    return [Prompt(f"chat {at}", "chat", question) for at, question in enumerate(CHATS[:count])]
