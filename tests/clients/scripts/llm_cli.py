# /// script
# requires-python = ">=3.11"
# dependencies = ["llm==0.36"]
# ///
"""llm, the command: an answer as it comes, a tool, a structured answer."""

import json
import os
import subprocess
import tempfile
from pathlib import Path

from cases import CITY, COUNT, PERSON, RESULT, say

TOOL = f"""
import json, os
def weather(city: str) -> str:
    "Return the weather in a city."
    with open(os.environ["CALLED"], "w") as file:
        json.dump(["weather", {{"city": city}}], file)
    return "{RESULT}"
"""
MODEL = """
- model_id: here
  model_name: {model}
  api_base: {url}
  supports_tools: true
  supports_schema: true
"""


def llm(*words: str) -> str:
    """Return what the command prints."""
    asked = ("llm", "prompt", "-m", "here", *words)
    return subprocess.run(asked, check=True, capture_output=True, text=True).stdout.strip()


with tempfile.TemporaryDirectory() as home:
    os.environ |= {"LLM_USER_PATH": home, "OPENAI_API_KEY": "none", "CALLED": f"{home}/called"}
    known = MODEL.format(model=os.environ["MODEL"], url=os.environ["BASE_URL"])
    (Path(home) / "extra-openai-models.yaml").write_text(known)
    say("stream", llm(COUNT))
    answer = llm("--functions", TOOL, CITY)
    say("tool", [*json.loads(Path(os.environ["CALLED"]).read_text()), answer])
    say("structured", json.loads(llm("--schema", "name str, age int", PERSON)))
