"""Prompts of `bench.sources`: chats, edits that repeat most of what they are given, and questions
over quoted passages.

Edits and passages were written for this benchmark; the chats are those of `outrider bench`.
"""

from bench.record.report import Prompt, prompts

CODE = {
    "stock": '''def total_price(items, tax_rate):
    """Return the price of all items, with tax."""
    subtotal = 0.0
    for item in items:
        if item.quantity < 0:
            raise ValueError("quantity must not be negative")
        subtotal += item.price * item.quantity
    tax = subtotal * tax_rate
    return subtotal + tax


def print_receipt(items, tax_rate):
    for item in items:
        print(f"{item.name:20} {item.quantity:4} {item.price:8.2f}")
    print(f"Total: {total_price(items, tax_rate):.2f}")
''',
    "queue": """class TaskQueue:
    def __init__(self, limit):
        self.limit = limit
        self.tasks = []

    def add(self, task):
        if len(self.tasks) >= self.limit:
            raise OverflowError("the queue is full")
        self.tasks.append(task)

    def take(self):
        if not self.tasks:
            return None
        return self.tasks.pop(0)

    def size(self):
        return len(self.tasks)
""",
    "settings": """server:
  host: 127.0.0.1
  port: 8080
  workers: 4
  timeout_seconds: 30
logging:
  level: info
  file: /var/log/service.log
  rotate_megabytes: 64
database:
  url: postgres://localhost/app
  pool_size: 10
  timeout_seconds: 5
""",
    "page": """<table>
  <tr><th>Name</th><th>Town</th><th>Year</th></tr>
  <tr><td>Anna</td><td>Bergen</td><td>1998</td></tr>
  <tr><td>Boris</td><td>Ghent</td><td>2003</td></tr>
  <tr><td>Clara</td><td>Porto</td><td>1995</td></tr>
  <tr><td>David</td><td>Turin</td><td>2001</td></tr>
</table>
""",
}
TEXTS = {
    "letter": (
        "Dear Mr. Holm, thank you for your order of the 3rd of May. We are sorry to say that the"
        " oak table is not in stock at the moment. We expect new tables in the last week of June"
        " and will send yours on the day that they arrive. If you would rather have the beech"
        " table, which is in stock, please let us know by the end of this week. With kind regards,"
        " the team of Holm and Daughters."
    ),
    "harbour": (
        "The harbour of Lindesund was built in 1874, after two storms had destroyed the old"
        " wooden piers. Its breakwater is 410 metres long and made of granite from the quarry at"
        " Aske. For sixty years herring boats landed their catch here every morning. When the"
        " herring went away in the 1930s, the town turned to building boats, and later to"
        " repairing the engines of ferries. Today the harbour has room for ninety small boats and"
        " a museum in the former ice house."
    ),
    "rules": (
        "Members may borrow up to six books at a time, for four weeks. A book that nobody has"
        " asked for may be kept for two weeks more. For each week that a book is late, members"
        " pay 50 cents, but never more than 5 euros for one book. Books that are lost must be"
        " replaced within 30 days. Children under twelve pay nothing. The reading room is open"
        " to everyone, members or not, from nine in the morning until eight in the evening."
    ),
    "bees": (
        "A colony of honey bees has one queen, a few hundred drones in summer and up to fifty"
        " thousand workers. Workers live for about six weeks in summer and for several months in"
        " winter. For the first three weeks of their life they clean cells, feed larvae and build"
        " comb; after that they fly out for nectar, pollen and water. To make one kilogram of"
        " honey, bees visit several million flowers."
    ),
}
CHANGES = (
    ("stock", "Rename tax_rate to vat_rate everywhere in this code."),
    ("queue", "Rename the class TaskQueue to JobQueue in this code."),
    ("settings", "Change the port to 9090 in this file."),
    ("page", "Change the town of Clara to Lisbon in this page."),
)
REPAIRS = (
    ("letter", 'Write this letter again with "oak" replaced by "cherry".'),
    ("harbour", "Write this text again with the year 1874 changed to 1884."),
    ("rules", "Write these rules again with six books changed to eight books."),
    ("bees", 'Write this text again with "honey bees" replaced by "wild bees".'),
)
QUESTIONS = (
    ("letter", "When will the new tables come? Quote the sentence that says so."),
    ("letter", "Which table is in stock? Answer with a quotation."),
    ("harbour", "Why was the harbour built, and when? Quote the text."),
    ("harbour", "What did the town do when the herring went away? Quote the sentence."),
    ("rules", "What does a late book cost? Quote the rule."),
    ("rules", "Who may use the reading room? Quote the rule."),
    ("bees", "What do workers do in the first three weeks of their life? Quote the text."),
    ("bees", "How long do workers live? Quote the text."),
)


def chats(count: int) -> list[Prompt]:
    """Return the first prompts of `outrider bench`."""
    return prompts()[:count]


def edits() -> list[Prompt]:
    """Return edits of code, then of text."""
    asked = [("code", CODE[name], change) for name, change in CHANGES]
    asked += [("text", TEXTS[name], change) for name, change in REPAIRS]
    return [
        Prompt(f"edit {at}", kind, f"{change} Answer with nothing but the whole result.\n\n{text}")
        for at, (kind, text, change) in enumerate(asked)
    ]


def quoted() -> list[Prompt]:
    """Return questions over quoted passages."""
    return [
        Prompt(f"quoted {at}", "quoted", f"{TEXTS[name]}\n\n{question}")
        for at, (name, question) in enumerate(QUESTIONS)
    ]
