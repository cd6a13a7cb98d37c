"""Draw the pictures of docs/concepts/speculation.md: `python -m tools.mirrored_tree`."""

from tools.mirrored_tree import FOLDER, pictures

for name, svg in pictures().items():
    (FOLDER / name).write_text(svg, encoding="utf-8")
