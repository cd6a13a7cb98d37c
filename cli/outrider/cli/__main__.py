"""Entry point of the `outrider` command, whose modules take a second to import.

Leaves all else to `app`.
"""

import sys

from outrider.cli import bytecode


def main() -> None:
    """Run the command; a Ctrl-C before it has begun is one line."""
    bytecode.keep()
    try:
        from outrider.cli.app import main as run
    except KeyboardInterrupt:
        print("outrider: stopped", file=sys.stderr)
        sys.exit(130)
    run()


if __name__ == "__main__":
    main()
