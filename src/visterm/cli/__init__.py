"""The command line: parse, call the app, print. The one place that turns an error into one line and exit code 2."""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command line; the entry point of the `visterm` program."""
    from visterm.cli.commands import app
    from visterm.core.errors import VistermError

    try:
        app()
    except VistermError as error:
        sys.exit(_fail(" ".join(str(error).split())))
    except KeyboardInterrupt:
        print("visterm: stopped; nothing half-written is left behind.", file=sys.stderr)
        sys.exit(130)
    except BrokenPipeError:  # the reader of our output (head, less) has gone
        sys.stderr.close()
        sys.exit(0)
    except OSError as error:
        sys.exit(_fail(f"{error.strerror or error}: {error.filename}" if error.filename else str(error)))


def _fail(message: str) -> int:
    print(f"visterm: {message}", file=sys.stderr)
    return 2
