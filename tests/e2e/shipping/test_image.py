"""What is published: the same bytes from the same source, and an image that holds nothing but what runs."""

from __future__ import annotations

import importlib.util
import json
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from steersman.testing.plugin import unavailable

ROOT = Path(__file__).parents[3]
USER = 65532

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


def wheel_in(folder: Path) -> Path:
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)],
        cwd=ROOT,
        check=True,
        capture_output=True,
        env={**os.environ, "SOURCE_DATE_EPOCH": "0"},
    )
    (made,) = folder.glob("*.whl")
    return made


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    return wheel_in(tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def image(wheel, tmp_path_factory):
    out = tmp_path_factory.mktemp("image") / "root"
    subprocess.run([sys.executable, str(ROOT / "image" / "root.py"), str(out), "--wheel", str(wheel)], check=True)
    yield out
    for folder in [out, *(path for path in out.rglob("*") if path.is_dir())]:
        folder.chmod(0o755)  # so that it can be removed again


def test_the_wheel_is_the_same_when_it_is_built_again(wheel, tmp_path):
    assert wheel_in(tmp_path).read_bytes() == wheel.read_bytes()


def test_no_client_may_write_and_nothing_gains_rights(image):
    modes = {path: path.lstat().st_mode for path in image.rglob("*")}
    assert [path for path, mode in modes.items() if mode & 0o222 and not stat.S_ISLNK(mode)] == []
    assert [path for path, mode in modes.items() if mode & (stat.S_ISUID | stat.S_ISGID)] == []


def test_there_is_no_shell_no_compiler_and_no_installer(image):
    programs = {path.name for path in image.rglob("*") if path.is_file() and os.access(path, os.X_OK)}
    assert programs.isdisjoint(
        {"sh", "bash", "dash", "busybox", "cc", "gcc", "ld", "as", "go", "pip", "pip3", "apt-get"}
    )
    packages = {path.name for path in image.glob("usr/lib/python3*/site-packages/*")}
    assert packages.isdisjoint({"pip", "setuptools", "wheel", "hatchling", "pytest", "mypy"})
    assert list(image.glob("usr/lib/python3*/ensurepip")) == []


def test_it_is_small(image):
    size = sum(path.lstat().st_size for path in image.rglob("*") if path.is_file())
    assert size < 200 * 2**20


def test_it_starts_as_an_anonymous_user_with_nothing_but_itself(image):
    if os.geteuid() != 0:
        unavailable("only root can change the root directory")
    environment = {"PYTHONHOME": "/usr", "PYTHONDONTWRITEBYTECODE": "1"}

    def ran(*arguments: str, program: tuple[str, str] = ("-m", "steersman")) -> subprocess.CompletedProcess[str]:
        inside = ["chroot", f"--userspec={USER}:{USER}", str(image), "/usr/bin/python3", *program, *arguments]
        return subprocess.run(
            inside, env=environment | {"PATH": os.environ["PATH"]}, capture_output=True, text=True, check=False
        )

    assert ran("--version").stdout.startswith("steersman ")
    assert "kind: ServiceAccount" in ran("rbac").stdout
    refused = ran("run", "--operators", "reload")
    assert (refused.returncode, refused.stderr.count("\n")) == (1, 1)
    assert "no cluster is configured" in refused.stderr
    first = "from steersman.cli.core_dumps import keep_memory_private; keep_memory_private(); print('private')"
    assert ran(program=("-c", first)).stdout == "private\n"  # what `run` does before anything is read


def test_the_bill_of_materials_is_valid_and_names_what_the_image_holds(image, wheel, tmp_path):
    from cyclonedx.schema import SchemaVersion
    from cyclonedx.validation.json import JsonStrictValidator  # takes seconds to import

    spec = importlib.util.spec_from_file_location("release_files", ROOT / "tools" / "release_files.py")
    assert spec is not None
    release = importlib.util.module_from_spec(spec)
    assert spec.loader is not None
    spec.loader.exec_module(release)
    (tmp_path / wheel.name).write_bytes(wheel.read_bytes())
    release.write(tmp_path, 0)
    text = (tmp_path / "steersman.cdx.json").read_text()
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(text) is None
    named = {component["name"].replace("-", "_").lower() for component in json.loads(text)["components"]}
    held = {
        path.name.rpartition("-")[0].rpartition("-")[0].lower().replace("-", "_") or path.name.split("-")[0].lower()
        for path in image.glob("usr/lib/python3*/site-packages/*.dist-info")
    }
    assert held - {"steersman", ""} <= named
    statement = json.loads((tmp_path / "provenance.json").read_text())
    assert statement["subject"][0]["digest"]["sha256"] in (tmp_path / "SHA256SUMS").read_text()
