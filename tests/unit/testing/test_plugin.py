from __future__ import annotations

import subprocess
import sys

import pytest

import steersman.testing

pytest_plugins = ["pytester"]


@pytest.fixture
def project(pytester, monkeypatch):
    """A test project on a machine without Go and without a cached control plane."""
    for name in ("CI", "KUBEBUILDER_ASSETS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("STEERSMAN_CACHE", str(pytester.path / "cache"))
    monkeypatch.setenv("PATH", "/nowhere")
    pytester.makeini(
        "[pytest]\nasyncio_mode = auto\n"
        "asyncio_default_fixture_loop_scope = session\nasyncio_default_test_loop_scope = session\n"
    )
    return pytester


def test_importing_the_plugin_imports_nothing_that_costs():
    program = (
        "import sys; before = set(sys.modules); import steersman.testing.plugin\n"
        "print(*sorted(name for name in set(sys.modules) - before if name.split('.')[0] in {'steersman', 'aiohttp'}))"
    )
    loaded = subprocess.check_output([sys.executable, "-c", program], text=True).split()
    assert "aiohttp" not in loaded
    assert [name for name in loaded if name.startswith("steersman.testing")] == [
        "steersman.testing",
        "steersman.testing.absence",
        "steersman.testing.plugin",
    ]


@pytest.mark.parametrize("name", steersman.testing.__all__)
def test_every_public_name_is_there(name):
    assert getattr(steersman.testing, name) is not None


def test_public_names_are_listed_and_others_are_not_there():
    assert dir(steersman.testing) == sorted(steersman.testing.__all__)
    assert len(set(steersman.testing.__all__)) == len(steersman.testing.__all__)
    with pytest.raises(AttributeError, match="nonsense"):
        _ = steersman.testing.nonsense


def test_a_missing_control_plane_skips_on_a_developers_machine(project):
    project.makepyfile("async def test_real(real): ...")
    result = project.runpytest_subprocess("-rs")
    result.assert_outcomes(skipped=1)
    result.stdout.fnmatch_lines(["*there is no `go` on PATH*"])


def test_a_missing_control_plane_fails_in_ci(project, monkeypatch):
    monkeypatch.setenv("CI", "true")
    project.makepyfile("async def test_real(real): ...")
    result = project.runpytest_subprocess()
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*there is no `go` on PATH*"])


def test_tests_on_the_real_control_plane_can_be_left_out(project):
    project.makepyfile(
        """
        def test_plain(): ...
        def test_real(real): ...
        def test_full(full): ...
        def test_both(cluster): ...
        def test_namespace_of_real(real, namespace): ...
        """
    )
    result = project.runpytest_subprocess("--collect-only", "-q", "-m", "not real")
    selected = [line for line in result.outlines if "::" in line]
    assert [line.rpartition("::")[2] for line in selected] == ["test_plain", "test_both[embedded]"]


def test_a_namespace_without_a_server_is_an_error_that_says_what_to_ask_for(project):
    project.makepyfile("def test_lost(namespace): ...")
    result = project.runpytest_subprocess()
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*ask for one of cluster, real, full, simulated, embedded as well*"])


def test_a_first_build_is_shown_and_happens_before_the_first_test(project, monkeypatch):
    project.makeconftest(
        """
        from steersman.testing.binaries import CONTROL_PLANE, GoModule

        def build(self, progress=None):
            for done in range(0, 101):
                progress(f"{self.name}: compiling", done, 100)
            raise SystemExit("built before any test")

        GoModule.build = build
        """
    )
    project.makepyfile("def test_real(real): ...")
    result = project.runpytest_subprocess()
    result.stdout.fnmatch_lines(["controlplane: compiling 0 %", "controlplane: compiling 50 %"])
    assert sum("compiling" in line for line in result.outlines) == 11


async def test_the_clock_fixture_is_virtual(clock):
    await clock.advance(3600)


def test_no_module_hides_what_the_package_offers():
    from pathlib import Path

    import steersman.testing

    modules = {path.stem for path in Path(steersman.testing.__file__).parent.glob("*.py")}
    assert modules.isdisjoint(steersman.testing.__all__)
