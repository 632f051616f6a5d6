"""The pytest plugin in projects of its own."""

from __future__ import annotations

import pytest

pytest_plugins = ["pytester"]
pytestmark = pytest.mark.slow  # every test starts a pytest of its own

NO_BUILD = """
    from steersman.testing.controlplane.binaries import GoModule

    def build(self, progress=None):
        raise SystemExit("this project must not compile Kubernetes")

    GoModule.build = build
"""


@pytest.fixture
def stranger(pytester, monkeypatch):
    """A test project that does not ask for the plugin, on a machine without Go and without a cached control plane."""
    for name in ("CI", "KUBEBUILDER_ASSETS", "STEERSMAN_CACHE_MUTATION_DETECTOR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("STEERSMAN_CACHE", str(pytester.path / "cache"))
    monkeypatch.setenv("PATH", "/nowhere")
    return pytester


@pytest.fixture
def project(stranger):
    """The same with the plugin."""
    stranger.makeini(
        "[pytest]\naddopts = -p steersman.testing\nasyncio_mode = auto\n"
        "asyncio_default_fixture_loop_scope = session\nasyncio_default_test_loop_scope = session\n"
    )
    return stranger


def test_nothing_happens_in_a_project_that_does_not_ask(stranger):
    stranger.makeconftest(
        """
        import os, sys

        def pytest_unconfigure(config):
            print("loaded", [name for name in sys.modules if name.split(".")[0] == "steersman"])
            print("set", [name for name in os.environ if name.startswith("STEERSMAN_CACHE_")])
        """
    )
    stranger.makepyfile("def test_theirs(): ...")
    result = stranger.runpytest_subprocess()
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["loaded []", "set []"])
    assert "steersman" not in stranger.runpytest_subprocess("--fixtures", "--markers").stdout.str()


@pytest.mark.parametrize("name", ["steersman.testing", "steersman.testing.plugin"])
def test_a_conftest_asks_for_it_by_name_also_after_an_import(stranger, name):
    stranger.makeconftest(f"from steersman.testing import eventually\npytest_plugins = [{name!r}]\n")
    stranger.makepyfile("def test_ours(steersman_clock): ...")
    stranger.runpytest_subprocess("-W", "error::pytest.PytestAssertRewriteWarning").assert_outcomes(passed=1)


def test_a_missing_control_plane_skips_on_a_developers_machine(project):
    project.makepyfile("async def test_real(steersman_real): ...")
    result = project.runpytest_subprocess("-rs")
    result.assert_outcomes(skipped=1)
    result.stdout.fnmatch_lines(["*there is no `go` on PATH*"])


def test_a_missing_control_plane_fails_in_ci(project, monkeypatch):
    monkeypatch.setenv("CI", "true")
    project.makepyfile("async def test_real(steersman_real): ...")
    result = project.runpytest_subprocess()
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*there is no `go` on PATH*"])


def test_tests_on_the_real_control_plane_can_be_left_out(project):
    project.makepyfile(
        """
        def test_plain(): ...
        def test_real(steersman_real): ...
        def test_full(steersman_full): ...
        def test_both(steersman_cluster): ...
        def test_namespace_of_real(steersman_real, steersman_namespace): ...
        """
    )
    result = project.runpytest_subprocess("--collect-only", "-q", "-m", "not steersman_real")
    selected = [line for line in result.outlines if "::" in line]
    assert [line.rpartition("::")[2] for line in selected] == ["test_plain", "test_both[embedded]"]


def test_a_namespace_without_a_server_is_an_error_that_says_what_to_ask_for(project):
    project.makepyfile("def test_lost(steersman_namespace): ...")
    result = project.runpytest_subprocess()
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*ask for one of steersman_cluster, steersman_real, *steersman_embedded as well*"])


def test_a_first_build_is_shown_and_happens_before_the_first_test(project, monkeypatch):
    project.makeconftest(
        """
        from steersman.testing.controlplane.binaries import CONTROL_PLANE, GoModule

        def build(self, progress=None):
            for done in range(0, 101):
                progress(f"{self.name}: compiling", done, 100)
            raise SystemExit("built before any test")

        GoModule.build = build
        """
    )
    project.makepyfile("def test_real(steersman_real): ...")
    result = project.runpytest_subprocess()
    result.stdout.fnmatch_lines(["controlplane: compiling 0 %", "controlplane: compiling 50 %"])
    assert sum("compiling" in line for line in result.outlines) == 11


@pytest.mark.parametrize(("asks", "marker"), [("-p steersman.testing", "real"), ("", "real"), ("", "steersman_real")])
def test_a_projects_own_marker_builds_nothing(stranger, asks, marker):
    stranger.makeini(f"[pytest]\naddopts = --strict-markers {asks}\nmarkers = {marker}: needs our own machine\n")
    stranger.makeconftest(NO_BUILD)
    stranger.makepyfile(
        f"""
        import pytest

        @pytest.mark.{marker}
        def test_theirs(request):
            assert [mark.name for mark in request.node.iter_markers()] == [{marker!r}]
        """
    )
    stranger.runpytest_subprocess().assert_outcomes(passed=1)


def test_every_fixture_and_marker_says_what_it_is_and_none_has_a_name_that_a_project_may_want(project):
    fixtures = project.runpytest_subprocess("--fixtures", "-q").outlines
    ours = {line.split()[0]: fixtures[at + 1] for at, line in enumerate(fixtures) if "testing/plugin.py" in line}
    assert len(ours) >= 11
    assert [name for name in ours if not name.startswith("steersman_")] == []
    assert [name for name, said in ours.items() if not said.startswith("    ") or "no docstring" in said] == []
    markers = project.runpytest_subprocess("--markers").outlines
    assert [line for line in markers if "control plane" in line and "@pytest.mark.steersman_real" not in line] == []
    project.makepyfile("def test_lost(client): ...")
    result = project.runpytest_subprocess()
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*fixture 'client' not found*"])


def test_a_test_that_changes_an_object_of_a_cache_fails(project):
    project.makepyfile(
        """
        from steersman.cache.store import ObjectStore
        from steersman.kube.api.objects import ObjectMeta, PartialObjectMetadata

        store = ObjectStore()

        def test_spoiling():
            obj = PartialObjectMetadata(metadata=ObjectMeta(name="a", namespace="shop"))
            store.upsert(obj)
            obj.metadata.labels = {"a": "b"}

        def test_after_it(): ...
        """
    )
    result = project.runpytest_subprocess()
    result.assert_outcomes(failed=1, passed=1)
    result.stdout.fnmatch_lines(["*CacheMutated: *PartialObjectMetadata shop/a (metadata.labels)*"])
