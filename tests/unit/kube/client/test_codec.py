from __future__ import annotations

import json

import pytest

from steersman.cache.identity import ref_of
from steersman.kube.api.errors import BadResponse, RequestInfo, ResourceExpired, ServerError
from steersman.kube.api.objects import ObjectMeta, PartialObjectMetadata, Resource, Struct
from steersman.kube.client.codec import DecodeFailure, WatchEvent, codec_for

REQUEST = RequestInfo("GET", "https://x/api/v1/things")


class Spec(Struct):
    size: int


class Thing(Resource, group="example.org", version="v1"):
    spec: Spec


class Loose(Resource, group="example.org", version="v1", kind="Thing"):
    spec: Spec | None = None


def thing(name, **parts):
    return {"metadata": {"name": name, "resourceVersion": "7"}, "spec": {"size": 1}, **parts}


def listing(*items, **metadata):
    return json.dumps({"kind": "ThingList", "metadata": {"resourceVersion": "9", **metadata}, "items": items}).encode()


def event(kind, obj):
    return json.dumps({"type": kind, "object": obj}).encode()


def nested(name, levels=5000, **parts):
    """An object that an API server stores (it takes 10,000 levels) and that no call stack of ours holds."""
    text = json.dumps(thing(name, note='a "}" in a string, and \\', **parts, deep="HERE"))
    return text.replace('"HERE"', '{"a":[' * (levels // 2) + "1" + "]}" * (levels // 2)).encode()


class TestObjects:
    def test_an_object_decodes_to_the_type_it_was_asked_for_as(self):
        assert codec_for(Thing).object(json.dumps(thing("a")).encode()).spec == Spec(size=1)
        assert codec_for(Thing.KIND).object(json.dumps(thing("a")).encode()) == thing("a")
        assert codec_for(Thing, dict).object(json.dumps(thing("a")).encode()) == thing("a")
        assert codec_for(Thing, Spec).object(b'{"size": 4}') == Spec(size=4)

    def test_metadata_only_is_asked_for_with_its_media_type(self):
        codec = codec_for(Thing, PartialObjectMetadata)
        assert codec.accept == "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json"
        assert codec.accept_list == "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json"
        assert codec_for(Thing).accept == "application/json"

    def test_decoders_are_built_once(self):
        assert codec_for(Thing) is codec_for(Thing)
        assert codec_for(Thing) is not codec_for(Loose)

    @pytest.mark.parametrize(
        ("body", "message"),
        [
            (b'{"spec": {"size": "x"}}', r"this Thing.example.org does not fit Thing: Expected `int`.*\$.spec.size"),
            (b'{"spec": {"si', "the answer is not JSON: Input data was truncated"),
            (b"<html>", "the answer is not JSON"),
            (nested("a"), "the answer is nested too deep"),
        ],
    )
    def test_what_does_not_fit_is_reported_with_field_and_request(self, body, message):
        with pytest.raises(BadResponse, match=message) as raised:
            codec_for(Thing).object(body, REQUEST)
        assert str(raised.value).endswith("(GET https://x/api/v1/things)")


class TestPages:
    def test_a_page_has_its_items_and_where_it_goes_on(self):
        page = codec_for(Thing).page(listing(thing("a"), thing("b"), **{"continue": "c", "remainingItemCount": 3}))
        assert [item.name for item in page.items] == ["a", "b"]
        assert (page.resource_version, page.continue_token, page.remaining) == ("9", "c", 3)
        assert page.undecodable == []

    def test_one_item_that_does_not_fit_leaves_the_others_alone(self):
        page = codec_for(Thing).page(listing(thing("a"), thing("b", spec={"size": "x"}), thing("c")))
        assert [item.name for item in page.items] == ["a", "c"]
        (bad,) = page.undecodable
        assert (bad.metadata.name, bad.metadata.resource_version) == ("b", "7")
        assert bad.error == "Expected `int`, got `str` - at `$.spec.size`"

    def test_an_item_whose_metadata_does_not_fit_is_still_named(self):
        broken = {"metadata": {"name": "b", "uid": "u", "labels": ["no", "map"]}}
        page = codec_for(Thing).page(listing(thing("a"), broken))
        assert page.undecodable[0].metadata == ObjectMeta(name="b", uid="u")

    @pytest.mark.parametrize("target", [Thing, Thing.KIND, PartialObjectMetadata])
    def test_one_item_that_is_nested_too_deep_leaves_the_others_alone(self, target):
        codec = codec_for(Thing, target) if target is PartialObjectMetadata else codec_for(target)
        body = listing(thing("a"), "HERE", thing("c", note="[")).replace(b'"HERE"', nested("b"))
        page = codec.page(body)
        assert [ref_of(item).name for item in page.items] == ["a", "c"]
        (bad,) = page.undecodable
        assert (bad.metadata.name, bad.metadata.resource_version) == ("b", "7")
        assert bad.error == "it is nested deeper than 500 levels"

    @pytest.mark.parametrize("parts", [{"spec": {"size": "x"}}, {"metadata": {"name": "b", "labels": []}}])
    def test_an_item_that_is_nested_too_deep_may_be_wrong_in_other_ways_too(self, parts):
        page = codec_for(Thing).page(listing(thing("a"), "HERE").replace(b'"HERE"', nested("b", **parts)))
        assert [item.name for item in page.items] == ["a"]
        assert [bad.metadata.name for bad in page.undecodable] == ["b"]

    def test_dicts_get_the_kind_that_lists_leave_out(self):
        page = codec_for(Thing.KIND).page(listing(thing("a"), thing("b", apiVersion="v9", kind="Other")))
        assert [(item["apiVersion"], item["kind"]) for item in page.items] == [
            ("example.org/v1", "Thing"),
            ("v9", "Other"),
        ]

    def test_an_empty_list_may_be_null(self):
        assert codec_for(Thing).page(b'{"kind": "ThingList", "metadata": {}, "items": null}').items == []

    @pytest.mark.parametrize(
        ("body", "message"),
        [
            (b"<html>", "the answer is not JSON"),
            (listing(thing("a"))[:-10], "the answer is not JSON: Input data was truncated"),
            (b"[]", "the answer is not a list"),
            (b"[" * 10_000, "the answer is not a list: Expected `object`"),
            (b'{"kind": "Thing"}', "the answer is a Thing, not a list"),
            (b'{"items": ' + b"[" * 10_000, "the answer is not a list: Input data was truncated"),
            (b"{}", "the answer is a value without a kind, not a list"),
        ],
    )
    def test_what_is_not_a_list_is_refused(self, body, message):
        with pytest.raises(BadResponse, match=message):
            codec_for(Thing).page(body, REQUEST)


class TestEvents:
    @pytest.mark.parametrize("kind", ["ADDED", "MODIFIED", "DELETED"])
    def test_a_change_decodes_to_the_type(self, kind):
        found = codec_for(Thing).event(event(kind, thing("a")))
        assert (found.type, found.object.name, found.object.spec.size) == (kind, "a", 1)

    @pytest.mark.parametrize("target", [Thing, Loose])
    def test_a_bookmark_decodes_to_metadata_whatever_the_type_requires(self, target):
        bookmark = {"metadata": {"resourceVersion": "42", "creationTimestamp": None}, "spec": {}}
        found = codec_for(target).event(event("BOOKMARK", bookmark))
        assert found == WatchEvent("BOOKMARK", PartialObjectMetadata(metadata=ObjectMeta(resource_version="42")))

    @pytest.mark.parametrize(("value", "end"), [("true", True), ("false", False)])
    def test_the_end_of_the_initial_events_is_marked(self, value, end):
        bookmark = {"metadata": {"resourceVersion": "42", "annotations": {"k8s.io/initial-events-end": value}}}
        assert codec_for(Thing).event(event("BOOKMARK", bookmark)).initial_events_end is end
        assert codec_for(Thing.KIND).event(event("BOOKMARK", bookmark)).initial_events_end is end

    def test_an_object_that_does_not_fit_is_handed_over_as_such(self):
        found = codec_for(Thing).event(event("MODIFIED", thing("a", spec={})))
        assert found.type == "MODIFIED"
        assert isinstance(found.object, DecodeFailure)
        assert found.object.metadata.name == "a"
        assert found.object.error == "Object missing required field `size` - at `$.object.spec`"

    @pytest.mark.parametrize("target", [Thing, Loose, Thing.KIND])
    def test_an_error_is_raised_as_what_it_stands_for(self, target):
        status = {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old resource version: 1 (9)"}
        with pytest.raises(ResourceExpired, match=r"too old resource version: 1 \(9\) \(GET https"):
            codec_for(target).event(event("ERROR", status), REQUEST)

    def test_an_error_of_the_server_is_raised_too(self):
        with pytest.raises(ServerError):
            codec_for(Loose).event(event("ERROR", {"kind": "Status", "code": 500, "message": "oops"}))

    @pytest.mark.parametrize(
        "line", [b"<html>", b"{}", b'{"type": "PARTY", "object": {}}', b'{"type": "ADDED"}', b"[1]"]
    )
    def test_a_line_that_is_not_an_event_ends_the_stream(self, line):
        with pytest.raises(BadResponse, match=r"the stream has a line that is not an event: .*\(GET https"):
            codec_for(Thing).event(line, REQUEST)


def line(kind, name, **parts):
    return json.dumps({"type": kind, "object": thing(name, **parts)}).encode() + b"\n"


class TestBlocksOfEvents:
    codec = codec_for(Thing)

    def test_a_block_of_changes_is_decoded_like_its_lines(self):
        lines = [line("ADDED", "a"), b"\n", line("DELETED", "b")]
        events, failure = self.codec.events(b"".join(lines))
        assert failure is None
        assert events == [self.codec.event(one) for one in (lines[0], lines[2])]

    def test_a_bookmark_and_an_object_that_does_not_fit_take_their_places_among_the_others(self):
        block = line("ADDED", "a") + line("ADDED", "odd", spec={}) + line("BOOKMARK", "") + line("MODIFIED", "c")
        events, failure = self.codec.events(block)
        assert failure is None
        seen = [(event.type, event.object.metadata.name) for event in events]
        assert seen == [("ADDED", "a"), ("ADDED", "odd"), ("BOOKMARK", ""), ("MODIFIED", "c")]
        assert isinstance(events[1].object, DecodeFailure)

    @pytest.mark.parametrize("parts", [{}, {"spec": {"size": "x"}}])
    @pytest.mark.parametrize("kind", [b"ADDED", b"DELETED"])
    def test_an_object_that_is_nested_too_deep_takes_its_place_among_the_others(self, kind, parts):
        deep = b'{"type": "%s", "object": %s}\n' % (kind, nested("deep", **parts))
        events, failure = self.codec.events(line("ADDED", "a") + deep + line("MODIFIED", "c"))
        assert failure is None
        seen = [(event.type, event.object.metadata.name) for event in events]
        assert seen == [("ADDED", "a"), (kind.decode(), "deep"), ("MODIFIED", "c")]
        assert isinstance(events[1].object, DecodeFailure)

    @pytest.mark.parametrize("last", [b'{"type":"ERROR","object":{"code":410,"reason":"Expired"}}\n', b"nonsense\n"])
    def test_what_came_before_an_error_is_not_lost(self, last):
        events, failure = self.codec.events(line("ADDED", "a") + last + line("ADDED", "never"))
        assert [event.object.metadata.name for event in events] == ["a"]
        assert isinstance(failure, ResourceExpired if b"410" in last else BadResponse)

    @pytest.mark.parametrize(("value", "ends"), [("true", True), ("false", False), ("", False)])
    def test_only_the_right_value_of_the_annotation_ends_the_initial_events(self, value, ends):
        metadata = {"resourceVersion": "7", "annotations": {"k8s.io/initial-events-end": value}}
        block = json.dumps({"type": "BOOKMARK", "object": {"metadata": metadata}}).encode() + b"\n"
        [event], _ = self.codec.events(block)
        assert event.initial_events_end is ends
