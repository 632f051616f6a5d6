"""What the documentation shows is true: commands exist with those options, YAML is accepted, links lead somewhere."""

from __future__ import annotations

import ast
import re
import shlex
from pathlib import Path

import click
import pytest
import yaml

from steersman.cli.config import load_settings
from steersman.cli.main import cli
from steersman.cli.migrate.originals import ORIGINALS, Deployed, report_on
from steersman.cli.reload.profile import profile_command
from steersman.crd import crd_manifest
from steersman.operators import OPERATORS, load_operator
from steersman.operators.reload.compat.profiles import read_profile
from tests.support.docs.pages import blocks_of, links_of

ROOT = Path(__file__).parents[3]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
BLOCKS = [block for page in PAGES for block in blocks_of(page, ROOT) if not block.hidden]
SHOWN = {
    "",
    "text",
    "python",
    "pycon",
    "console",
    "yaml",
    "toml",
    "json",
    "promql",
    "dot",
    "mermaid",
    "ini",
    "diff",
    "make",
    "html",
}


def commands(block):
    """The `steersman` commands in a block: after `$ ` in a session, at the start of a line elsewhere."""
    text = block.text.replace("\\\n", " ")
    for line in text.splitlines():
        if block.language == "console" and not line.startswith("$ "):
            continue
        for part in re.split(r"\|\|?|&&|;|<\(|\$\(|(?<![<>0-9])&(?!>)", line.removeprefix("$ ").split(" #")[0]):
            words = re.sub(r"[0-9]?>>?.*|<<?.*|\)$", "", part).strip()
            words = re.sub(r"^(kubectl )?(\.venv/bin/)?steersman ", "steersman ", words)
            if words.startswith("steersman "):
                yield words


SHELL = [
    pytest.param(words, id=f"{block.place} {words}"[:90])
    for block in BLOCKS
    if block.language in {"", "console"} and block.page != "CHANGELOG.md"
    for words in commands(block)
]
YAML = [pytest.param(block, id=block.place) for block in BLOCKS if block.language == "yaml"]
PYTHON = [pytest.param(block, id=block.place) for block in BLOCKS if block.language == "python"]


def test_every_block_says_what_it_is():
    odd = [block.place for block in BLOCKS if block.language not in SHOWN and not block.language.startswith("{")]
    assert odd == []


@pytest.mark.parametrize("words", SHELL)
def test_a_command_that_is_shown_exists_with_its_options(words):
    command: click.Command | None = cli
    arguments = shlex.split(words)[1:]
    if arguments[0] == "reload" and "--profile" in arguments:  # the rest are flags of another program
        told = profile_command.make_context("reload", arguments[1:]).params
        assert read_profile(told["profile"], told["arguments"], {}).name == told["profile"]
        return
    context = click.Context(cli, info_name="steersman")
    while isinstance(command, click.Group):
        own, rest = split_options(command, context, arguments)
        if not rest:
            assert own or command.invoke_without_command, f"{words}: which command?"
            return
        name, _, arguments = command.resolve_command(context, rest)
        command = command.get_command(context, name)
        context = click.Context(command, parent=context, info_name=name)
    assert command is not None
    command.make_parser(context).parse_args(args=list(arguments))


def split_options(group, context, arguments):
    """A group's own options, and what comes after them."""
    options, rest, _ = group.make_parser(context).parse_args(args=list(arguments))
    return options, rest


@pytest.mark.parametrize("block", PYTHON)
def test_python_that_is_shown_is_python(block):
    ast.parse(block.text)


@pytest.fixture(scope="session")
def installed():
    return [crd_manifest(kind) for name in OPERATORS for kind in load_operator(name).kinds]


@pytest.mark.parametrize("block", YAML)
async def test_yaml_that_is_shown_is_accepted(block, embedded, client, namespace, installed, tmp_path):
    for number, document in enumerate(yaml.safe_load_all(block.text)):
        if document is None:
            continue
        assert isinstance(document, dict | list), f"{block.place}: document {number} is neither object nor list"
        if isinstance(document, dict) and "apiVersion" in document and "kind" in document:
            for manifest in installed:
                await client.apply(manifest)
            await accepted(client, document, namespace)
        elif isinstance(document, dict) and set(document) & set(OPERATORS):
            path = tmp_path / "steersman.yaml"
            path.write_text(yaml.safe_dump(document))
            load_settings(path)


async def accepted(client, document, namespace):
    """The server takes it, as a dry run in a namespace of the test's own."""
    group = document["apiVersion"].rpartition("/")[0]
    if any(part in group for part in ("monitoring.coreos.com", "kustomize", "argoproj", "toolkit.fluxcd.io")):
        return  # other people's kinds: that it is YAML is what can be said here
    if "namespace" in document.get("metadata", {}):
        document["metadata"]["namespace"] = namespace
    served = await client.discovery.resolve_kind(document["apiVersion"], document["kind"])
    where = {"namespace": namespace} if served.namespaced else {}
    await client.apply(document, dry_run=True, field_manager="documentation", field_validation="Strict", **where)


def test_links_lead_somewhere():
    missing = [
        f"{page.relative_to(ROOT)}: {target}"
        for page in PAGES
        for target in links_of(page)
        if not (page.parent / target.partition("#")[0]).exists()
    ]
    assert missing == []


TEXTS = [
    *PAGES,
    *(ROOT / "src").rglob("*.py"),
    *(
        path
        for folder in ("charts", "deploy", "examples")
        for path in (ROOT / folder).rglob("*")
        if path.is_file() and path.suffix != ".pyc"
    ),
]


def test_no_text_names_a_public_image_because_there_is_none():
    shown = [path for path in TEXTS if path.name != "CHANGELOG.md"]
    assert [str(path) for path in shown if re.search(r"(ghcr|docker|quay)\.io/\S*steersman", path.read_text())] == []


def test_every_shown_installation_names_an_image():
    texts = [block.text.replace("\\\n", " ") for block in BLOCKS]
    texts += [
        "\n".join(report_on(original, Deployed(namespace="old", name=name, image="old:1")).steps)
        for name, original in ORIGINALS.items()
    ]
    lines = [line for text in texts for line in text.splitlines() if "helm install steersman " in line]
    assert len(lines) > len(ORIGINALS)
    assert [line for line in lines if "image.repository=" not in line] == []
