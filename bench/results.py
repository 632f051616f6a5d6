"""What a benchmark found: printed, and kept in bench/results as JSON, a Markdown table and a small plot.

A bar is a promise with a number; a missed bar is written down like any other result, and makes the benchmark fail.
"""

from __future__ import annotations

import os
import platform
import time
from html import escape
from pathlib import Path
from typing import Any

import msgspec
from figures import line_of, text_of

RESULTS = Path(__file__).parent / "results"
_COLOURS = ("#2f6f9f", "#b5651d", "#4f8a4f", "#8a4f7d", "#8a8a3c", "#666666", "#a33b3b", "#3b8f8f")


class Bar(msgspec.Struct, frozen=True, kw_only=True):
    """One promise: `value` must be at most (or at least) `limit`."""

    name: str
    value: float
    limit: float
    at_least: bool = False

    @property
    def held(self) -> bool:
        """Whether it was kept."""
        return self.value >= self.limit if self.at_least else self.value <= self.limit


class Results:
    """The table of one benchmark."""

    def __init__(self, name: str, title: str, method: str, columns: dict[str, str]) -> None:
        """`columns`: key of a row -> heading. The first names the row, the second is what the plot shows."""
        self.name, self.title, self.method, self.columns = name, title, method, columns
        self.rows: list[dict[str, Any]] = []
        self.bars: list[Bar] = []
        self.versions: dict[str, str] = {}

    def add(self, **row: Any) -> None:
        """One more line of the table."""
        self.rows.append(row)
        print("  ".join(f"{key}={text_of(value)}" for key, value in row.items()), flush=True)

    def bar(self, name: str, value: float, limit: float, *, at_least: bool = False) -> None:
        """Measure against a promise."""
        self.bars.append(Bar(name=name, value=value, limit=limit, at_least=at_least))

    def finish(self) -> int:
        """Write everything; 1 when a bar was missed."""
        RESULTS.mkdir(exist_ok=True)
        found = {
            "name": self.name,
            "title": self.title,
            "method": self.method,
            "machine": machine(),
            "versions": self.versions,
            "rows": self.rows,
            "bars": [{**msgspec.structs.asdict(bar), "held": bar.held} for bar in self.bars],
        }
        text = msgspec.json.format(msgspec.json.encode(found), indent=2)
        (RESULTS / f"{self.name}.json").write_bytes(text + b"\n")
        (RESULTS / f"{self.name}.md").write_text(self.markdown())
        (RESULTS / f"{self.name}.svg").write_text(self.plot())
        print(f"\n{self.markdown()}")
        return int(not all(bar.held for bar in self.bars))

    def markdown(self) -> str:
        """The table, the bars and where they come from."""
        lines = [
            line_of(self.columns.values()),
            line_of("---:" if i else "---" for i in range(len(self.columns))),
        ]
        lines += [line_of(text_of(row.get(key)) for key in self.columns) for row in self.rows]
        if self.bars:
            lines += [
                "",
                line_of(("bar", "measured", "promised", "held")),
                line_of(("---", "---:", "---:", "---")),
            ]
            lines += [
                line_of((b.name, text_of(b.value), f"{'≥' if b.at_least else '≤'} {text_of(b.limit)}", _verdict(b)))
                for b in self.bars
            ]
        versions = "".join(f", {name} {version}" for name, version in self.versions.items())
        lines += ["", f"{self.method} Measured on {machine()}{versions}."]
        return "\n".join(lines) + "\n"

    def plot(self) -> str:
        """Horizontal bars of the second column."""
        label, value = list(self.columns)[:2]
        rows = [row for row in self.rows if isinstance(row.get(value), int | float)]
        largest = max((row[value] for row in rows), default=1) or 1
        height = 40 + 26 * len(rows)
        parts = [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 720 {height}" font-family="sans-serif">',
            "<style>text { font-size: 13px }</style>",
            f'<rect width="720" height="{height}" fill="#ffffff"/>',
            f'<text x="10" y="22" font-weight="bold">{escape(self.title)}: {escape(self.columns[value])}</text>',
        ]
        for number, row in enumerate(rows):
            y, width = 36 + 26 * number, max(1.0, 380 * row[value] / largest)
            colour = _COLOURS[number % len(_COLOURS)]
            parts.append(f'<text x="215" y="{y + 15}" text-anchor="end">{escape(str(row[label]))}</text>')
            parts.append(f'<rect x="222" y="{y + 2}" width="{width:.1f}" height="18" fill="{colour}"/>')
            parts.append(f'<text x="{228 + width:.1f}" y="{y + 15}">{text_of(row[value])}</text>')
        return "\n".join([*parts, "</svg>", ""])


def machine() -> str:
    """What it ran on, and how busy that was."""
    model = platform.processor() or platform.machine()
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            model = line.partition(":")[2].strip()
            break
    day = time.strftime("%Y-%m-%d", time.gmtime())
    system = f"Linux {platform.release().partition('-')[0]}, CPython {platform.python_version()}"
    return f"{os.cpu_count()} cores of {model}, {system}, load {os.getloadavg()[0]:.1f}, {day}"


def _verdict(bar: Bar) -> str:
    return "yes" if bar.held else "**no**"
