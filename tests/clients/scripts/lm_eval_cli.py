# /// script
# requires-python = ">=3.11"
# dependencies = ["lm-eval[api]==0.4.13", "transformers==5.23.0"]
# ///
"""lm-eval, the command: a task of one question whose choices are scored."""

import json
import os
import subprocess
import tempfile
from pathlib import Path

from cases import say

QUESTION = {"question": "one", "choices": [" three", " two"], "answer": 1}
TASK = {
    "task": "counting",
    "dataset_path": "json",
    "output_type": "multiple_choice",
    "test_split": "test",
    "doc_to_text": "{{question}}",
    "doc_to_choice": "choices",
    "doc_to_target": "answer",
    "target_delimiter": "",
    "metric_list": [{"metric": "acc"}],
}

with tempfile.TemporaryDirectory() as folder:
    os.environ |= {"HF_HOME": folder, "HF_HUB_OFFLINE": "1", "OPENAI_API_KEY": "none"}
    data = Path(folder) / "data.jsonl"
    data.write_text(json.dumps(QUESTION) + "\n")
    task = {**TASK, "dataset_kwargs": {"data_files": {"test": str(data)}}}
    (Path(folder) / "counting.yaml").write_text(json.dumps(task))
    model = {
        "model": os.environ["MODEL"],
        "base_url": f"{os.environ['BASE_URL']}/completions",
        "tokenizer": os.environ["FOLDER"],
    }
    words = ",".join(f"{key}={value}" for key, value in model.items())
    asked = ("--model", "local-completions", "--model_args", words, "--tasks", "counting")
    where = ("--include_path", folder, "--output_path", folder)
    done = subprocess.run(["lm_eval", *asked, *where], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    (results,) = Path(folder).rglob("results_*.json")
    say("accuracy", json.loads(results.read_text())["results"]["counting"]["acc,none"])
