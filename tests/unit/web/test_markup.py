from __future__ import annotations

from html.parser import HTMLParser

from hypothesis import given
from hypothesis import strategies as st

from steersman.web.markup import h, text_of


class Reader(HTMLParser):
    def __init__(self):
        super().__init__()
        self.tags, self.text, self.attributes = [], "", []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += attrs

    def handle_data(self, data):
        self.text += data


def read(element) -> Reader:
    reader = Reader()
    reader.feed(str(element))
    reader.close()
    return reader


@given(st.text(), st.text())
def test_text_from_the_cluster_never_becomes_markup(text, attribute):
    found = read(h("p", {"title": attribute}, text, [text]))
    assert found.tags == ["p"]
    assert found.attributes == [("title", attribute)]
    assert found.text == 2 * text


def test_attributes_without_a_value_are_left_out_or_bare():
    assert str(h("input", {"a": None, "b": False, "c": True, "d": 0})) == '<input c d="0">'


def test_drawings_close_their_elements():
    assert str(h("svg", {}, h("rect", {"x": 1}), h("path", {}))) == '<svg><rect x="1"/><path/></svg>'


def test_the_text_of_an_element_has_no_markup():
    assert text_of(h("p", {}, "a", None, [h("b", {}, 1), "<"])) == "a1<"


def test_a_quote_in_an_attribute_does_not_end_it():
    found = read(h("p", {"title": '"><script>alert(1)</script>'}))
    assert found.tags == ["p"]
    assert found.attributes == [("title", '"><script>alert(1)</script>')]
