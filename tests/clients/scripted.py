"""What the scripted model says to the clients, and its chat template, which chooses."""

ADA = '{"name": "Ada", "age": 36}'
OPEN, CLOSE = "<tool_call>\n", "\n</tool_call>"
BEFORE, AFTER = 'print("hello")\n', 'print("good-bye")\n'
WHOLE = f"hello.py\n```\n{AFTER}```\n"
DIFF = f"hello.py\n```python\n<<<<<<< SEARCH\n{BEFORE}=======\n{AFTER}>>>>>>> REPLACE\n```\n"
WEATHER = '{"name": "weather", "arguments": {"city": "Paris"}}'
WRITE = (
    '{"name": "Write", "arguments": '
    '{"filepath": "hello.py", "content": "print(\\"good-bye\\")\\n"}}'
)


def forced(function: str) -> str:
    """Return the call by which some clients have an answer in their form."""
    return f'{{"name": "{function}", "arguments": {ADA}}}'


SAYS = {
    "<|count|>": ["one", " two", " three", " four"],
    "<|weather|>": [OPEN + WEATHER + CLOSE],
    "<|result|>": ["It is 18 degrees", " in Paris."],
    "<|person|>": [ADA],
    "<|whole|>": [WHOLE],
    "<|diff|>": [DIFF],
    "<|write|>": [OPEN + WRITE + CLOSE],
}
INSTEAD = {
    "<|result|>": [ADA],
    "<|person|>": [*map(forced, ("Person", "PartialPerson", "final_result"))],
}
TEMPLATE = """\
{%- for m in messages %}
{{- '<|' + m.role + '|>' + (m.content or '') }}
{%- for call in m.tool_calls or [] %}
{{- '<tool_call>\n' + call.function | tojson + '\n</tool_call>' }}
{%- endfor %}
{{- '<|end|>' }}
{%- endfor %}
{%- if add_generation_prompt %}
{{- '<|assistant|>' }}
{%- set asked = messages[-1].content or '' %}
{%- if messages[-1].role == 'tool' %}{{ '<|result|>' }}
{%- elif 'first program' in asked %}{{ '<|person|>' }}
{%- elif 'SEARCH/REPLACE' in asked %}{{ '<|diff|>' }}
{%- elif 'file listing' in asked %}{{ '<|whole|>' }}
{%- elif 'good-bye' in asked %}{{ '<|write|>' }}
{%- elif tools %}{{ '<|weather|>' }}
{%- else %}{{ '<|count|>' }}
{%- endif %}
{%- endif %}"""
