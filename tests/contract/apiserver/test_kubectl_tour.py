"""A tour with the real kubectl: every command must say the same on the embedded server as on the real one.

A chapter is a list of commands that runs in a namespace of its own, on both servers at once. What differs by nature
(ages, uids, revisions, times, addresses, ports) is replaced, and the rest is compared line by line.
"""

from __future__ import annotations

import asyncio
import contextlib
import difflib
import re
import shlex
from typing import TYPE_CHECKING

import pytest

from steersman.testing.controlplane.binaries import find_program
from steersman.testing.programs import Program
from tests.support.kubectl_tour import CHAPTERS, Stop

if TYPE_CHECKING:
    from pathlib import Path

    from steersman.testing.raw_api import ApiServer

_NORMAL = [
    (re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"), "UID"),
    (re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)"), "TIME"),
    (re.compile(r"\w{3}, \d\d \w{3} \d{4} \d\d:\d\d:\d\d [+-]\d{4}"), "TIME"),
    (re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(\.\d+)? [+-]\d{4}( \w+)?"), "TIME"),
    (re.compile(r'(resourceVersion"?: )"\d+"'), r'\1"REV"'),
    (re.compile(r"(?<=Resource Version:)\s+\d+"), " REV"),
    (re.compile(r"127\.0\.0\.1:\d+"), "HOST"),
    (re.compile(r"\b10\.\d+\.\d+\.\d+"), "ADDRESS"),
    (re.compile(r"\b3[0-2]\d{3}(?=/TCP)|(?<=nodePort: )\d+"), "PORT"),
    (re.compile(r"/tmp/(LIVE|MERGED)-\d+/"), r"\1/"),
    (re.compile(r"\b(\d+[smhd]){1,2}( ago)?(?=\s|$|\))|<unknown>"), "AGE"),
    (re.compile(r"^(ey)?[\w.-]{40,}$"), "TOKEN"),
    (re.compile(r"(?<=[a-z]-)[bcdfghjklmnpqrstvwxz2456789]{5}\b"), "RANDOM"),
    (re.compile(r"\s{2,}"), "  "),  # columns are as wide as their widest cell
    # Of an error the field and its reason are promised, not the sentence.
    (re.compile(r"((?:is invalid: |^\* )\S+: (?:Invalid value|Forbidden|Unsupported value)).*"), r"\1"),
    (re.compile(r"(cannot be handled as a \w+): (?!strict decoding error).*"), r"\1"),
    (re.compile(r"(field label not supported: [\w.]+).*"), r"\1"),
    (re.compile(r"(failed to create typed patch object \([^)]*\): [^ ]+:) .*"), r"\1"),
]

# The real server's repair loop may see a Service before its address, and then says so in an Event, now and then.
_REPAIR_EVENT = re.compile(r"Events:\n.*\n.*----.*\n(?:.*ipallocator-repair-controller.*(?:\n|$))+")
_GO_DIFF = re.compile(r"\n@@ -\d+,.*", re.DOTALL)  # a refused change of a pod ends with a diff of Go structs


@pytest.mark.timeout(240)
@pytest.mark.parametrize("chapter", CHAPTERS)
async def test_kubectl_says_the_same_on_both_servers(
    chapter: str, embedded: ApiServer, real: ApiServer, tmp_path: Path
):
    ours, theirs = await asyncio.gather(
        *(tour(server, chapter, tmp_path / name) for name, server in (("embedded", embedded), ("real", real)))
    )
    difference = "\n".join(difflib.unified_diff(theirs, ours, "real", "embedded", lineterm="", n=4))
    assert not difference, difference


async def test_what_the_embedded_server_serves_is_served_by_the_real_one(
    embedded: ApiServer, real: ApiServer, tmp_path: Path
):
    kubectl = _kubectl(embedded, tmp_path / "definitions")
    for command in ("api-versions", "api-resources --no-headers", "api-resources -o wide --no-headers"):
        before = await kubectl("get", "crds", "-o", "name")
        ours, theirs = [
            {re.sub(r"\s+", " ", line) for line in (await kubectl(*shlex.split(command))).out.splitlines()}
            for kubectl in (_kubectl(embedded, tmp_path / "embedded"), _kubectl(real, tmp_path / "real"))
        ]
        after = await kubectl("get", "crds", "-o", "name")  # other tests install theirs meanwhile
        custom = {line.partition("/")[2].partition(".")[2] for line in f"{before.out}{after.out}".splitlines()}
        ours = {line for line in ours if not line.startswith("apiservices ")}
        ours = {line for line in ours if not any(group and group in line for group in custom)}
        assert ours <= theirs


async def tour(server: ApiServer, chapter: str, home: Path) -> list[str]:
    """Everything kubectl said, as lines."""
    kubectl = _kubectl(server, home)
    await kubectl("create", "namespace", f"tour-{chapter}")
    transcript: list[str] = []
    for stop in CHAPTERS[chapter]:
        arguments = [*shlex.split(stop.command), "-n", f"tour-{chapter}"]
        transcript += [f"$ kubectl {stop.command}", *await _run(kubectl, stop, arguments)]
    await kubectl("delete", "namespace", f"tour-{chapter}", "--wait=false")  # others see its Services
    return transcript


def _kubectl(server: ApiServer, home: Path) -> Program:
    home.mkdir(exist_ok=True)
    server.write_kubeconfig(home / "config")
    return Program(find_program("kubectl"), home / "config", home=home)


async def _run(kubectl: Program, stop: Stop, arguments: list[str]) -> list[str]:
    if stop.watch:
        return await _follow(kubectl, stop, arguments)
    async with asyncio.timeout(90):
        while True:
            output = await kubectl(*arguments, stdin=stop.stdin, check=False)
            if not stop.until or stop.until in output.out:
                break
    said = _GO_DIFF.sub("", output.err)
    return [f"exit {output.code}", *_lines(output.out), *(f"! {line}" for line in _lines(said))]


async def _follow(kubectl: Program, stop: Stop, arguments: list[str]) -> list[str]:
    """A command that goes on: what it says until it has said enough, while other commands run."""
    process = await kubectl.start(*arguments)
    assert process.stdout is not None
    lines: list[str] = []
    try:
        async with asyncio.timeout(90):
            for awaited, command in stop.watch:
                while len(lines) < awaited:
                    lines.append((await process.stdout.readline()).decode())
                if command:
                    await kubectl(*shlex.split(command), *arguments[-2:])
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.communicate()
    return _lines("".join(lines))


def _lines(text: str) -> list[str]:
    text = _REPAIR_EVENT.sub("Events:  <none>\n", text)
    for pattern, replacement in _NORMAL:
        text = "\n".join(pattern.sub(replacement, line) for line in text.split("\n"))
    return [line.rstrip() for line in text.split("\n") if line.strip()]
