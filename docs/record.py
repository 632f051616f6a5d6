"""Records the demo as `docs/demo.svg`, when its story is another one than that of the recording.

A recording names ports and process ids, which differ every time: it is made anew only when there is something new to
tell.
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
from pathlib import Path

DOCS = Path(__file__).parent
STORY = [DOCS.parent / "src" / "steersman" / "cli" / "demo" / name for name in ("command.py", "data.py", "script.py")]
PICTURE = DOCS / "demo.svg"


def main() -> None:
    """Record it, unless that has been done."""
    told = hashlib.sha256(b"".join(path.read_bytes() for path in STORY)).hexdigest()[:16]
    mark = f"<!-- story {told} -->"
    if PICTURE.exists() and PICTURE.read_text().rstrip().endswith(mark):
        return
    program = [sys.executable, "-c", "from steersman.cli.main import main; main()", "demo", "--no-stay"]
    subprocess.run([*program, "--record", str(PICTURE)], check=True, stdout=subprocess.DEVNULL)  # noqa: S603  # our own program
    PICTURE.write_text(f"{PICTURE.read_text().rstrip()}\n{mark}\n")


if __name__ == "__main__":
    main()
