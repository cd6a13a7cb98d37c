"""A worker without a model: the real command line, the real protocols, made-up tokens.

The model's name in the settings says how it misbehaves: `refuses` fails to prepare, `falls` ends
before it is ready, `taken` finds its first port in use, `stubborn` heeds no
SIGTERM, `alone` runs no draft, `dies` has a draft that ends when it is measured,
`slow` measures for ever, `meets` waits for the other worker's start, `foreign` compiles for
ever. A draft whose URI says `foreign` cannot be used.
"""

import argparse
import asyncio
import json
import signal
import sys
from pathlib import Path

from outrider.contract.settings import Role, WorkerSettings


def prepare(settings: WorkerSettings) -> int:
    """Prints what a real preparation prints."""
    if settings.name == "refuses":
        print(json.dumps({"error": "MixtralForCausalLM is not supported"}), flush=True)
        return 1
    print(json.dumps({"stage": "reading", "done": 1, "total": 2}), flush=True)
    folders = dict.fromkeys(("directory", "tokenizer", "cache"), settings.cache)
    print(json.dumps({"prepared": folders | {"embeddings": None}}), flush=True)
    return 0


def profile(settings: WorkerSettings) -> int:
    """Prints made-up step costs."""
    print(json.dumps({"stage": "measuring", "done": 0, "total": 2}), flush=True)
    rows = {"1": 0.010 if settings.role is Role.TARGET else 0.001}
    roles = {settings.role: {"1": {"dtype": "int8", "rows": rows}}}
    print(json.dumps(roles), flush=True)
    return 3 if settings.name == "ends-badly" else 0


def main() -> int:
    """Parses what the real worker parses."""
    parser = argparse.ArgumentParser()
    parser.add_argument("verb")
    parser.add_argument("--settings", type=Path)
    parser.add_argument("--parent-fd", type=int)
    arguments = parser.parse_args()
    settings = WorkerSettings.from_json(arguments.settings.read_text())
    match arguments.verb:
        case "prepare":
            return prepare(settings)
        case "pair":
            assert settings.colocated is not None
            foreign = "foreign" in settings.colocated.uri
            said = {"refused": "no token is in both"} if foreign else {"pair": {"share": None}}
            print(json.dumps(said), flush=True)
            return 0
        case "compile":
            if settings.name == "foreign":
                signal.pause()
            return 0
        case "profile":
            return profile(settings)
    from fake_server import serve  # beside this script; only this verb pays for gRPC

    return asyncio.run(serve(settings, arguments.parent_fd))


if __name__ == "__main__":
    sys.exit(main())
