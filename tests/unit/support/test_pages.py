from __future__ import annotations

from textwrap import dedent

import pytest

from tests.support.docs.pages import Command, File, LeftOut, PageError, agree, blocks_of, steps_of


@pytest.fixture
def steps(tmp_path):
    """The steps of a page with this text."""

    def read(text):
        page = tmp_path / "page.md"
        page.write_text(dedent(text))
        return [step for block in blocks_of(page, tmp_path) for step in steps_of(block)]

    return read


def test_a_session_is_commands_with_what_each_prints(steps):
    assert steps("""\
        ```console
        $ one --wide \\
            --more
        first
        second
        $ two <<'END'
        $ not a command
        END
        ```
        """) == [
        Command("page.md:1", "one --wide \\\n    --more", "first\nsecond"),
        Command("page.md:1", "two <<'END'\n$ not a command\nEND"),
    ]


def test_every_line_of_a_plain_block_is_a_command(steps):
    assert [step.text for step in steps("```\none\ntwo  # why\n```\n")] == ["one", "two  # why"]


def test_marks_say_what_a_block_is(steps):
    assert steps("""\
        <!-- walk: file a/b.yaml -->
        ```yaml
        a: 1
        ```
        <!-- walk
        $ prepare
        -->
        <!-- walk: exits 3 0 -->
        ```
        one
        two
        ```
        <!-- walk: not run, it needs a moon -->
        ```
        three
        ```
        """) == [
        File("page.md:2", "a/b.yaml", "a: 1\n"),
        Command("page.md:5", "prepare"),
        Command("page.md:9", "one", code=3),
        Command("page.md:9", "two"),
        LeftOut("page.md:14", "three", "it needs a moon"),
    ]


@pytest.mark.parametrize(
    "text",
    [
        "```\nnever closed\n",
        "<!-- walk: exits 3 -->\nno block\n",
        "<!-- walk: nonsense -->\n```\none\n```\n",
        "<!-- walk exits 3 -->\n```\none\n```\n",
        "<!-- walk: exits 0 3 -->\n```\none\n```\n",
        "```console\nprinted before\n$ one\n```\n",
    ],
)
def test_what_is_not_understood_is_refused(steps, text):
    with pytest.raises((PageError, ValueError)):
        steps(text)


@pytest.mark.parametrize(
    ("shown", "printed", "alike"),
    [
        ("a   b", "a b\n", True),
        ("at 2026-11-16T22:47:33Z", "at 2027-01-01T00:00:00Z", True),
        ("other-f77vd4cj54-zc4q7 ready", "other-q5s24hgwm7-47vcm ready", True),
        ("configmap/app   mode   Pugd3H7y0kyT", "configmap/app   mode   pXK_Ue5ZksMx", True),
        ("configmap/app   mode   Pugd3H7y0kyT", "configmap/app   mode   qCYwij-Em4PF", True),
        ("heard 3 s ago", "heard 41 s ago", True),
        ("web   2/2   6s", "web   2/2   3m20s", True),
        ("web   2/2   6s", "web   1/2   6s", False),
        ("window (5s quiet)", "window (6s quiet)", False),
        ("1 workload would restart", "2 workloads would restart", False),
        ("one\ntwo", "one", False),
        ("one", "one\ntwo", False),
        ("deployment/web", "deployment/other", False),
    ],
)
def test_only_what_changes_by_itself_may_differ(shown, printed, alike):
    assert (agree(shown, printed) == "") is alike
