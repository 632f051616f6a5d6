"""What a release is made with is pinned, and one pin does not contradict another."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[3]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))


def pins(path):
    """Requirement -> its version and digests."""
    blocks = re.split(r"\n(?=\S)", (ROOT / path).read_text().strip())
    found = {
        block.split("==")[0]: (block.split("==")[1].split()[0], set(re.findall(r"sha256:\w+", block)))
        for block in blocks
    }
    assert all(digests for _, digests in found.values()), path
    return found


@pytest.mark.parametrize("path", ["image/build.lock", "image/requirements.lock"])
def test_what_the_image_is_made_with_is_what_was_tested(path):
    tested = pins("requirements.lock")
    for name, (version, digests) in pins(path).items():
        assert (name, version) == (name, tested[name][0])
        assert digests <= tested[name][1]


def test_the_image_installs_nothing_that_is_not_pinned():
    commands = re.findall(r"pip install [^&]*", (ROOT / "Dockerfile").read_text().replace("\\\n", " "))
    assert commands
    assert all("--require-hashes" in command for command in commands)


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_a_workflow_has_no_rights_that_a_job_did_not_ask_for_and_puts_no_expression_into_a_script(path):
    workflow = yaml.safe_load(path.read_text())
    assert workflow["permissions"] == {"contents": "read"}
    for job in workflow["jobs"].values():
        for step in job.get("steps", ()):
            assert "${{" not in step.get("run", ""), step  # a name with a quote in it would be a command


def test_nothing_is_published_before_it_was_tested():
    jobs = yaml.safe_load((ROOT / ".github" / "workflows" / "release.yml").read_text())["jobs"]

    def waits_for(name):
        needs = jobs[name].get("needs", [])
        needs = [needs] if isinstance(needs, str) else needs
        return {*needs, *(far for near in needs for far in waits_for(near))}

    assert all("test" in waits_for(name) for name in jobs if name != "test")
