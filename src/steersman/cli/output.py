"""How commands print: a table that fits the terminal, or the same value as JSON or YAML.

Every command makes one value and shows it here, so `-o json` never knows more or less than the table. Colour only on a
terminal, and not with NO_COLOR. Text from the cluster cannot control the terminal: see `harmless`.
"""

from __future__ import annotations

import os
import sys
from itertools import zip_longest
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from rich.console import Console
    from rich.text import Text

F = TypeVar("F", bound="Callable[..., Any]")

COLUMNS: Final = "STEERSMAN_COLUMNS"  # the width of tables, where a program shows them on a screen of its own
WIDE: Final = 100_000  # columns outside a terminal: a pipe must not cut lines
GAP: Final = 3  # between columns, where there is room
LEAST: Final = 12  # of a column whose words must break
READABLE: Final = 30  # of a column whose lines break
INDENT: Final = "    "  # of what stands below its row


def output_option(*further: str) -> Callable[[F], F]:
    """`-o table|wide|json|yaml`, and further forms; the command gets `output`."""
    forms = ["table", "wide", "json", "yaml", *further]
    text = "How to print: a table that fits the terminal, one with lines of any length (wide), or data."
    return click.option("-o", "--output", type=click.Choice(forms), default="table", show_default=True, help=text)


def manifest_output_option(command: F) -> F:
    """`-o yaml|json`, for commands that print manifests; the command gets `output`."""
    return click.option(
        "-o", "--output", type=click.Choice(["yaml", "json"]), default="yaml", show_default=True, help="How to print."
    )(command)


def show(
    value: Any, output: str, table: Callable[[Console], None], *, names: Callable[[], Iterable[str]] | None = None
) -> None:
    """Print `value` as JSON or YAML, or let `table` draw it; `-o name` prints `names`, for other commands to read."""
    if output in ("table", "wide"):
        table(console(wide=output == "wide"))
        return
    if output == "name" and names is not None:
        for name in dict.fromkeys(names()):
            click.echo(harmless(name))
        return
    import msgspec

    if output == "json":
        click.echo(msgspec.json.format(msgspec.json.encode(value)).decode())
    else:
        import yaml

        click.echo(yaml.safe_dump(msgspec.to_builtins(value), sort_keys=False, allow_unicode=True), nl=False)


def harmless(text: str) -> str:
    r"""The text with everything that a terminal obeys made visible, except line breaks and tabs.

    Names, messages and annotations come from other users of the cluster; one that clears the screen or draws other
    lines must not reach the terminal.

    >>> print(harmless("a" + chr(27) + "[2Jb"))
    a\x1b[2Jb
    """
    return text.translate(_VISIBLE)


# C0 without tab and newline, DEL, C1, and the marks that turn the direction of writing round
_OBEYED: Final = (*range(9), *range(11, 32), *range(127, 160), *range(0x202A, 0x202F), *range(0x2066, 0x206A))
_VISIBLE: Final = {code: chr(code).encode("unicode_escape").decode() for code in _OBEYED}


def console(*, stderr: bool = False, wide: bool = False) -> Console:
    """Where tables are drawn: as wide as the terminal; `wide`, and in a pipe, without bounds."""
    from rich.console import Console

    class Harmless(Console):
        """Escapes every text it prints."""

        def render_str(self, text: str, **options: Any) -> Text:
            return super().render_str(harmless(text), **options)

    stream = sys.stderr if stderr else sys.stdout
    width = None if stream.isatty() and not wide else WIDE
    if os.environ.get(COLUMNS, "").isdecimal() and not wide:
        width = int(os.environ[COLUMNS])
    return Harmless(file=stream, width=width, highlight=False, markup=False, emoji=False, soft_wrap=False)


def print_table(to: Console, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Rows below headings, as kubectl prints them; what does not fit goes on below, rather than vanish.

    Where whole columns would have to become narrow, the longest get lines of their own below their row.
    """
    from rich.text import Text

    grid = [[Text(column.upper(), style="bold") for column in columns]]
    grid += [
        [cell if isinstance(cell, Text) else Text("" if cell is None else harmless(str(cell))) for cell in row]
        for row in rows
    ]
    used = [place for place in range(len(columns)) if any(len(row[place]) for row in grid)]
    natural = {place: max(_longest(row[place].plain.splitlines()) for row in grid) for place in used}
    words = {place: max(_longest(row[place].plain.split()) for row in grid) for place in used}
    below = stacked([natural[place] for place in used], [words[place] for place in used], to.width)
    beside = [place for number, place in enumerate(used) if number not in below]
    widths, gap = fitted([natural[place] for place in beside], [words[place] for place in beside], to.width)
    for number, row in enumerate(grid):
        _print_row(to, [row[place] for place in beside], widths, gap)
        for place in (used[index] for index in below) if number else ():
            if row[place].plain:
                label = f"{columns[place].lower()}  " if columns[place] else ""
                _print_hanging(to, Text(INDENT + label, style="dim"), row[place])


def print_fields(to: Console, fields: Sequence[tuple[str, str]]) -> None:
    """A label and its text per line; a long text goes on below itself."""
    width = max((len(label) for label, _ in fields), default=0) + GAP
    for label, text in fields:
        print_hanging(to, f"{label:<{width}}", text)


def print_hanging(to: Console, lead: str | Text, text: str) -> None:
    """A line that goes on below its text, not below what leads it."""
    from rich.text import Text

    _print_hanging(to, Text(harmless(lead)) if isinstance(lead, str) else lead, Text(harmless(text)))


def _print_hanging(to: Console, lead: Text, text: Text) -> None:
    _print_row(to, [lead, text], [len(lead), max(to.width - len(lead), LEAST)], 0)


def _longest(parts: Iterable[str]) -> int:
    return max(map(len, parts), default=0)


def stacked(natural: Sequence[int], words: Sequence[int], width: int) -> list[int]:
    """Which columns stand below their row, because beside the others they would be too narrow to read.

    The first names the row and stays. One long column may share the line, as long as it has room for a few words.
    """
    beside = list(range(len(natural)))
    while len(beside) > 1:
        made, gap = fitted([natural[place] for place in beside], [words[place] for place in beside], width)
        cut = [place for place, got in zip(beside, made, strict=True) if got < min(natural[place], READABLE)]
        fits = sum(made) + gap * (len(made) - 1) <= width
        broken = any(got < words[place] for place, got in zip(beside, made, strict=True))
        if fits and not cut and not broken:
            break
        beside.remove(max(beside[1:], key=lambda place: natural[place]))
    return [place for place in range(len(natural)) if place not in beside]


def fitted(natural: Sequence[int], words: Sequence[int], width: int) -> tuple[list[int], int]:
    """How wide columns are, and the gap between them, so that a row fits.

    `natural` is what each column would like, `words` its longest word. Gaps shrink first, then lines break between
    words, and only then the longest words themselves: a name that can be copied is worth more than air.
    """
    for gap, wanted in ((GAP, natural), (2, natural), (GAP, words), (2, words), (1, words)):
        room = width - gap * (len(natural) - 1)
        if sum(wanted) <= room:
            return _narrowed(natural, words, room), gap
    room = width - (len(natural) - 1)
    return _narrowed(words, [min(word, LEAST) for word in words], room), 1


def _narrowed(widths: Sequence[int], least: Sequence[int], room: int) -> list[int]:
    """The widths, taken from the widest first, down to what fits or to the least."""
    made = list(widths)
    while (excess := sum(made) - room) > 0:
        loose = [place for place in range(len(made)) if made[place] > least[place]]
        if not loose:
            break
        widest = max(loose, key=lambda place: made[place])
        made[widest] = max(least[widest], made[widest] - excess)
    return made


def _print_row(to: Console, cells: Sequence[Text], widths: Sequence[int], gap: int) -> None:
    from rich.text import Text

    wrapped = [cell.wrap(to, max(width, 1), overflow="fold") for cell, width in zip(cells, widths, strict=True)]
    for pieces in zip_longest(*wrapped):
        line = Text()
        for piece, width in zip(pieces, widths, strict=True):
            end = line.cell_len + width + gap
            line.append_text(piece or Text())
            line.append(" " * (end - line.cell_len))
        line.rstrip()
        to.print(line, soft_wrap=True)
