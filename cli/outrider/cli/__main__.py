"""Entry point of the `outrider` command, whose modules take a second to import.

Leaves all else to `app`.
"""


def main() -> None:
    """Run the command; a Ctrl-C before it has begun is one line."""
    try:
        from outrider.cli import bytecode

        bytecode.keep()
        from outrider.cli.app import main as run
    except KeyboardInterrupt:
        from outrider.cli.failures import stop

        stop()
    run()


if __name__ == "__main__":
    main()
