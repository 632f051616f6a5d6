from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steersman.apiserver.regexps import MAX_STATES, Regexp, RegexpError


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
    assert Regexp(pattern).search(text) is matches


@pytest.mark.parametrize(
    ("pattern", "complaint"),
    [
        ("(?!a)", "invalid or unsupported Perl syntax: `(?!`"),
        ("(?<=a)b", "invalid or unsupported Perl syntax: `(?<`"),
        ("(?P=n)", "invalid or unsupported Perl syntax: `(?P`"),
        ("a**", "invalid nested repetition operator: `**`"),
        ("a++", "invalid nested repetition operator: `++`"),
        ("a{1001}", "invalid repeat count: `{1001}`"),
        ("[z-a]", "invalid character class range: `z-a`"),
        ("[a", "missing closing ]: `[a`"),
        ("(a", "missing closing ): `(a`"),
        ("a)", "unexpected ): `a)`"),
        (r"\1", r"invalid escape sequence: `\1`"),
        (r"\Z", r"invalid escape sequence: `\Z`"),
        ("*a", "missing argument to repetition operator: `*`"),
        ("[[:foo:]]", "invalid character class range: `[:foo:]`"),
        (r"\pX", r"invalid character class range: `\pX`"),
        ("a?+?", "invalid nested repetition operator: `?+?`"),
        ("(?", "invalid or unsupported Perl syntax: `(?`"),
        ("(?ix)", "invalid or unsupported Perl syntax: `(?ix`"),
        ("(?P<a b>c)", "invalid named capture: `(?P<a b>`"),
        ("a\\", "trailing backslash at end of expression: ``"),
    ],
)
def test_what_go_refuses_is_refused_in_its_words(pattern: str, complaint: str) -> None:
    with pytest.raises(RegexpError) as refused:
        Regexp(pattern)
    assert str(refused.value) == f"error parsing regexp: {complaint}"


@pytest.mark.parametrize("pattern", ["^(a+)+$", "^(a|a)*$", "^(a|aa)+$", "(x+x+)+y", "^(([a-z])+.)+[A-Z]([a-z])+$"])
def test_no_pattern_can_make_a_search_explode(pattern: str) -> None:
    """With backtracking each of these would outlive the test run; here the number of states stays small."""
    compiled = Regexp(pattern)
    assert not compiled.search("a" * 5000 + "!")
    assert len(compiled._states) < 50


def test_a_pattern_with_very_many_states_forgets_some_and_still_answers() -> None:
    compiled = Regexp("[ab]*a[ab]{14}$")
    text = "".join("ab"[(at * at + at // 3) % 2] for at in range(20_000))
    assert compiled.search(text + "a" + "b" * 14)
    assert not compiled.search("b" * 40)
    assert len(compiled._states) <= MAX_STATES


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
    assert Regexp(pattern).search(text) is expected
