"""The exit codes of every `steersman` command, in one place: scripts and pipelines decide by them."""

from __future__ import annotations

from enum import IntEnum


class ExitCode(IntEnum):
    """What the process ends with. click itself uses `USAGE` for unknown options and wrong arguments."""

    OK = 0
    ERROR = 1  # the command could not do what it was asked; one line on stderr says why
    USAGE = 2  # a flag, an argument or a variable is wrong
    FOUND = 3  # the command did its work and found something: drift, a plan that is not empty, an unready process
    INTERRUPTED = 130  # Ctrl-C
    TERMINATED = 143  # SIGTERM


def exit_code(*, found: bool, error: bool = False) -> ExitCode:
    """The code of a command that searches or compares; an error outweighs what was found."""
    return ExitCode.ERROR if error else ExitCode.FOUND if found else ExitCode.OK
