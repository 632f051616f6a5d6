from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steersman.apiserver.crd.compiled_schema import PatternError, compile_pattern


@pytest.mark.parametrize(
    ("pattern", "text", "matches"),
    [
        ("b", "abc", True),
        ("^b", "abc", False),
        ("^a+$", "aaa", True),
        ("^a+$", "aaa\n", False),
        ("(?m)^a$", "b\na\nb", True),
        ("^.$", "\n", False),
        ("(?s)^.$", "\n", True),
        ("(?i)^straße$", "STRAßE", True),
        ("a(?i)b", "aB", True),
        ("a(?i)b", "AB", False),
        ("(?i:a)b", "Ab", True),
        ("(?i:a)b", "AB", False),
        (r"\bfoo\b", "a foo.", True),
        (r"\bfoo\b", "afoo", False),
        (r"\Bo", "foo", True),
        (r"^\d+$", "٣", False),
        (r"^\s$", "\v", False),
        (r"^\p{L}+$", "äß", True),
        (r"^\P{L}$", "1", True),
        (r"^\p{Greek}$", "λ", True),
        (r"^[^\p{Lu}]+$", "aB", False),
        ("^[[:alpha:]_]+$", "a_b", True),
        ("^[^[:digit:]]$", "5", False),
        ("^[]a]$", "]", True),
        ("^[a-]$", "-", True),
        (r"^[\]\-\\]+$", r"]-\ "[:3], True),
        ("^(a|bc)*$", "abcabc", True),
        ("^(?:a*)*$", "", True),
        ("^a{2,3}$", "aaaa", False),
        ("^a{2,}$", "aaaa", True),
        ("^a{0}b$", "b", True),
        ("^x{,5}$", "x{,5}", True),
        (r"^\Qa.b*\E$", "a.b*", True),
        (r"^\x41\x{1F600}\101$", "A\U0001f600A", True),
        ("^(?P<name>a)(?<other>b)$", "ab", True),
        ("^a|b$", "ax", True),
        ("", "anything", True),
        ("^a*?$", "aaa", True),
        ("^a(?i)*$", "aa", True),
        ("^[a-c-e]+$", "b-e", True),
    ],
)
def test_patterns_mean_what_they_mean_in_go(pattern: str, text: str, matches: bool) -> None:
    assert bool(compile_pattern(pattern).search(text)) is matches


@pytest.mark.parametrize(
    "pattern",
    [
        "(?!a)",
        "(?<=a)b",
        "(?P=n)",
        "a**",
        "a++",
        "a{1001}",
        "[z-a]",
        "[a",
        "(a",
        "a)",
        r"\1",
        r"\Z",
        "*a",
        "[[:foo:]]",
        r"\pX",
        "a?+?",
        "(?",
        "(?ix)",
        "(?P<a b>c)",
        "a\\",
    ],
)
def test_what_the_api_server_refuses_is_refused(pattern: str) -> None:
    with pytest.raises(PatternError):
        compile_pattern(pattern)


@pytest.mark.parametrize("pattern", ["^(a+)+$", "^(a|a)*$", "^(a|aa)+$", "(x+x+)+y", "^(([a-z])+.)+[A-Z]([a-z])+$"])
def test_no_pattern_can_make_a_search_explode(pattern: str) -> None:
    """With backtracking each of these would outlive the test run."""
    assert not compile_pattern(pattern).search("a" * 5000 + "!")


def test_a_pattern_with_very_many_states_still_answers() -> None:
    compiled = compile_pattern("[ab]*a[ab]{14}$")
    text = "".join("ab"[(at * at + at // 3) % 2] for at in range(20_000))
    assert compiled.search(text + "a" + "b" * 14)
    assert not compiled.search("b" * 40)


_atoms = st.sampled_from(["a", "b", ".", "[ab]", "[^a]", r"\d", r"\w", "^", "$", r"\b"])
_patterns = st.recursive(
    _atoms,
    lambda inner: st.one_of(
        st.lists(inner, min_size=1, max_size=3).map("".join),
        st.lists(inner, min_size=2, max_size=3).map(lambda parts: f"(?:{'|'.join(parts)})"),
        st.tuples(inner, st.sampled_from(["*", "+", "?", "{1,2}"])).map(lambda pair: f"(?:{pair[0]}){pair[1]}"),
    ),
    max_leaves=6,
)


@given(_patterns, st.text(alphabet="ab1 -", max_size=8))
def test_where_both_speak_the_same_language_it_agrees_with_python(pattern: str, text: str) -> None:
    expected = re.search(pattern.replace("$", r"\Z"), text, re.ASCII) is not None
    assert bool(compile_pattern(pattern).search(text)) is expected
