"""What `--help` says: commands by task, whole sentences, every option described."""

from __future__ import annotations

import io
import json
import re

import click
import pytest
from rich.console import Console

from steersman.cli.main import _run, cli
from steersman.cli.output import WIDE, console, print_table


def commands(path=(), command=cli):
    """Every command with the words that name it."""
    yield path, command
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            yield from commands((*path, name), command.get_command(context, name))


def test_commands_are_grouped_by_task(capsys):
    assert _run(["--help"]) == 0
    shown = capsys.readouterr().out
    assert re.findall(r"^(\w+):$", shown, re.MULTILINE) == ["Options", "Run", "Operate", "Install", "Develop"]
    operate = shown.partition("Operate:")[2].partition("Install:")[0]
    assert all(f"  {name} " in operate for name in ("status", "why", "plan", "reload", "dns", "toolset", "hourglass"))


@pytest.mark.parametrize(
    ("asked", "meant"), [("freeze", "reload freeze"), ("discover", "toolset discover"), ("import", "dns import")]
)
def test_a_command_of_a_group_is_found_by_its_own_name(asked, meant, capsys):
    assert _run([asked]) == 2
    assert f"Did you mean '{meant}'?" in capsys.readouterr().err


def test_every_option_is_described():
    silent = [
        (" ".join(path), option.opts)
        for path, command in commands()
        for option in command.params
        if isinstance(option, click.Option) and not (option.help or option.hidden)
    ]
    assert silent == []


@pytest.mark.parametrize("group", ["dns", "toolset", "hourglass", "reload", "controlplane", "migrate"])
def test_no_summary_is_cut(group, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    assert _run([group, "--help"]) == 0
    listed = capsys.readouterr().out.partition("Commands:")[2]
    assert listed
    assert "..." not in listed


@pytest.mark.parametrize("name", ["plan", "why", "audit", "graph", "history", "freeze", "thaw", "approve"])
def test_everything_about_restarts_is_below_reload(name, capsys):
    assert _run(["reload", name, "--help"]) == 0
    assert f"Usage: steersman reload {name}" in capsys.readouterr().out


def test_the_version_is_a_command_too(capsys):
    assert _run(["version", "--client", "-o", "json"]) == 0
    assert set(json.loads(capsys.readouterr().out)) == {"steersman", "python"}


def test_a_cluster_that_does_not_answer_has_an_unknown_version(capsys, tmp_path):
    nowhere = tmp_path / "kubeconfig"
    nowhere.write_text(
        "{apiVersion: v1, kind: Config, current-context: a, users: [], contexts: [{name: a, context: {cluster: a}}],"
        " clusters: [{name: a, cluster: {server: 'http://127.0.0.1:1'}}]}"
    )
    assert _run(["version", "--kubeconfig", str(nowhere)]) == 0
    assert re.search(r"^cluster +unknown: ", capsys.readouterr().out, re.MULTILINE)


def test_a_wrong_selector_is_a_usage_error(capsys):
    assert _run(["audit", "-l", "a in"]) == 2
    assert "-l" in capsys.readouterr().err


ROWS = [("deployment/web", "a sentence of so many words that no terminal of eighty columns holds it in one line, ever")]


def test_wide_tables_never_break_a_line():
    assert console(wide=True).width == WIDE
    drawn = io.StringIO()
    print_table(Console(width=WIDE, file=drawn), ["workload", "why"], ROWS)
    assert len(drawn.getvalue().splitlines()) == 2


def test_a_table_is_as_wide_as_the_screen_of_the_program_that_shows_it(monkeypatch):
    monkeypatch.setenv("STEERSMAN_COLUMNS", "180")
    assert console().width == 180


PERFORMER = """
apiVersion: v1
kind: ConfigMap
metadata: {name: app}
data: {mode: a}
---
apiVersion: hourglass.eigenlayer.io/v1alpha1
kind: Performer
metadata: {name: prices}
spec: {avsAddress: "0x456", image: "prices:3"}
"""


def test_plan_asks_every_operator_whose_kinds_are_in_the_manifests(capsys, tmp_path):
    from steersman.operators.hourglass.api.types import Performer

    file = tmp_path / "all.yaml"
    file.write_text(PERFORMER.replace("hourglass.eigenlayer.io/v1alpha1", Performer.KIND.api_version))
    assert _run(["plan", "-f", str(file), "-o", "json"]) == 3
    made = json.loads(capsys.readouterr().out)
    assert made["changes"] == []
    assert {line["action"] for line in made["hourglass"]} == {"create"}
    assert _run(["reload", "plan", "-f", str(file), "-o", "json"]) == 0
    assert "hourglass" not in json.loads(capsys.readouterr().out)


@pytest.mark.parametrize(
    ("target", "asked"),
    [
        ("performer/gpu", ("hourglass", "performer/gpu")),
        ("executors/x", ("hourglass", "executor/x")),
        ("www.example.org", ("dns", "www.example.org")),
        ("svc/prometheus", ("toolset", "prometheus")),
        ("deploy/web", ("reload", "deploy/web")),
        ("dnszones/org", ("object", "dnszones/org")),
    ],
)
def test_why_asks_the_operator_that_an_object_belongs_to(target, asked, monkeypatch):
    from steersman.cli.dns import commands as dns
    from steersman.cli.hourglass import commands as hourglass
    from steersman.cli.operate import why
    from steersman.cli.reload import why as reload
    from steersman.cli.toolset import commands as toolset

    heard = []
    monkeypatch.setattr(toolset.explain, "callback", lambda service, **_: heard.append(("toolset", service)))
    monkeypatch.setattr(dns.why, "callback", lambda name, **_: heard.append(("dns", name)))
    monkeypatch.setattr(hourglass.why, "callback", lambda target, **_: heard.append(("hourglass", target)))
    monkeypatch.setattr(reload.command, "callback", lambda workload, **_: heard.append(("reload", workload)))
    monkeypatch.setattr(why, "_explain", lambda _ctx, target, **_: heard.append(("object", target)))
    assert _run(["why", target]) == 0
    assert heard == [asked]
