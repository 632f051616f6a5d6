"""Completion: commands without a cluster, names with one, and never a complaint."""

from __future__ import annotations

import sys

import pytest
from click.shell_completion import ShellComplete

from steersman.cli import completion
from steersman.cli.main import _run, cli


def completed(*words: str) -> list[str]:
    *before, incomplete = words
    shell = ShellComplete(cli, {}, "steersman", "_STEERSMAN_COMPLETE")
    return [item.value for item in shell.get_completions(list(before), incomplete)]


@pytest.mark.parametrize(("shell", "said"), [("bash", "complete -o"), ("zsh", "#compdef"), ("fish", "complete ")])
def test_each_shell_gets_its_script(shell, said, capsys):
    assert _run(["completion", shell]) == 0
    assert said in capsys.readouterr().out


def test_commands_are_completed_by_their_beginning():
    assert "controlplane" in completed("contr")


def test_kubectl_gets_candidates_and_is_asked_to_offer_no_files(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["kubectl_complete-steersman", "contr"])
    completion.kubectl()
    assert capsys.readouterr().out.splitlines()[-1] == ":4"


def test_without_a_cluster_nothing_is_offered_and_nothing_is_printed(monkeypatch, tmp_path, capsys):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("KUBECONFIG", raising=False)
    assert completed("run", "-n", "") == []
    assert capsys.readouterr() == ("", "")


async def test_namespaces_and_workloads_are_completed_from_the_cluster(
    embedded, client, namespace, tmp_path, monkeypatch
):
    import asyncio

    path = tmp_path / "kubeconfig"
    embedded.write_kubeconfig(path)
    monkeypatch.setenv("KUBECONFIG", str(path))
    await client.create(
        {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": "web", "namespace": namespace},
            "spec": {
                "selector": {"matchLabels": {"app": "web"}},
                "template": {
                    "metadata": {"labels": {"app": "web"}},
                    "spec": {"containers": [{"name": "web", "image": "web:1"}]},
                },
            },
        }
    )
    assert namespace in await asyncio.to_thread(completed, "run", "-n", namespace[:4])
    context = sm_context(namespace)
    assert await asyncio.to_thread(completion.complete_workload, context, None, "deploy/") == ["deploy/web"]
    assert completion.complete_workload(context, None, "dep") == ["deployment/"]
    assert completion.complete_workload(context, None, "teapot/") == []
    assert await asyncio.to_thread(completed, "why", "-n", namespace, "deploy/") == ["deploy/web"]


@pytest.mark.parametrize("words", [("why",), ("reload", "trigger"), ("reload", "freeze"), ("reload", "thaw")])
def test_commands_about_a_workload_complete_its_kind(words):
    assert completed(*words, "dep") == ["deployment/"]


def sm_context(namespace: str):
    import click

    context = click.Context(click.Command("why"))
    context.params = {"namespace": namespace}
    return context
