"""Where the `steersman` program begins: Ctrl-C ends it without a traceback also while it is still loading.

Python's own handler raises an exception wherever it happens to be, which during imports is nowhere that catches it.
"""

from __future__ import annotations

import signal
from typing import NoReturn


def main(argv: list[str] | None = None) -> NoReturn:
    """Run the command line and exit."""
    asked = signal.getsignal(signal.SIGINT)
    if asked is signal.default_int_handler:  # a shell that runs us in the background has it ignored
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from steersman.cli.main import main as run

    signal.signal(signal.SIGINT, asked)
    run(argv)
