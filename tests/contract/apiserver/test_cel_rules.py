"""Rules in CEL (`x-kubernetes-validations`): the same objects and the same definitions are rejected on both servers,
with the same reason at the same field."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from steersman.testing import eventually
from steersman.testing.raw_api import JSON_PATCH, MERGE_PATCH
from tests.support.manifests import crd

if TYPE_CHECKING:
    from steersman.testing.raw_api import RawApi, RawResponse
    from tests.support.manifests import Space

CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
INVALID, TEXT, WHOLE = "FieldValueInvalid", {"type": "string", "maxLength": 30}, {"type": "integer"}


def ruled(schema: dict[str, Any], *rules: str | dict[str, Any]) -> dict[str, Any]:
    made = [{"rule": rule} if isinstance(rule, str) else rule for rule in rules]
    return {**schema, "x-kubernetes-validations": made}


def struct(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties}


def listed(items: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"type": "array", "maxItems": 5, "items": items, **more}


def mapped(values: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"type": "object", "maxProperties": 5, "additionalProperties": values, **more}


def keyed(items: dict[str, Any]) -> dict[str, Any]:
    item = {**items, "required": ["name"], "properties": {"name": TEXT, **items.get("properties", {})}}
    return listed(item, **{"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]})


LIMITS = struct(min=WHOLE, max=WHOLE)
IN_ORDER = "self.min <= self.max"

# Each is a property of the spec; an object of the test has one of them.
FIELDS: dict[str, dict[str, Any]] = {
    "scalar": ruled(WHOLE, "self % 2 == 0"),
    "object": ruled(LIMITS, IN_ORDER),
    "items": listed(ruled(LIMITS, IN_ORDER)),
    "values": mapped(ruled(LIMITS, IN_ORDER)),
    "deep": struct(inner=mapped(listed(ruled(TEXT, "self.startsWith('a')")))),
    "message": ruled(TEXT, {"rule": "self != 'no'", "message": " not no "}),
    "spoken": ruled(LIMITS, {"rule": IN_ORDER, "messageExpression": "'%d is over %d'.format([self.min, self.max])"}),
    "silent": ruled(LIMITS, {"rule": "false", "message": "kept", "messageExpression": "string(1 / (self.min - 1))"}),
    "forbidden": ruled(TEXT, {"rule": "self != 'no'", "reason": "FieldValueForbidden"}),
    "required": ruled(TEXT, {"rule": "self != 'no'", "reason": "FieldValueRequired"}),
    "duplicate": ruled(TEXT, {"rule": "self != 'no'", "reason": "FieldValueDuplicate"}),
    "field": ruled(struct(inner=LIMITS), {"rule": "self.inner.min == 1", "fieldPath": ".inner.min"}),
    "entry": ruled(struct(inner=mapped(WHOLE)), {"rule": "'a' in self.inner", "fieldPath": ".inner['a']"}),
    "several": ruled(WHOLE, "self > 1", "self > 2", "self > 3"),
    "number": ruled({"type": "number"}, "self / 2.0 > 1.0"),
    "flexible": ruled({"x-kubernetes-int-or-string": True}, "type(self) == int ? self < 5 : self == '5%'"),
    "loose": ruled({"x-kubernetes-int-or-string": True}, "self < 5"),
    "since": ruled({"type": "string", "format": "date-time"}, "self.getFullYear() >= 2026"),
    "day": ruled({"type": "string", "format": "date"}, "self > timestamp('2026-01-01T00:00:00Z')"),
    "wait": ruled({"type": "string", "format": "duration"}, "self <= duration('1h')"),
    "data": ruled({"type": "string", "format": "byte", "maxLength": 30}, "self == b'hello'"),
    "timed": ruled(struct(at={"type": "string", "format": "date-time"}), "self.at.getFullYear() >= 2026"),
    "missing": ruled(struct(a=WHOLE, b=WHOLE), "self.a == 1"),
    "present": ruled(struct(a=WHOLE, b=WHOLE), "has(self.a) || has(self.b)"),
    "optional": ruled(struct(a=WHOLE), "self.?a.orValue(1) == 1"),
    "divided": ruled(WHOLE, "10 / self > 1"),
    "absorbed": ruled(listed(WHOLE), "self.exists(x, 10 / x == 5)"),
    "escaped": ruled(
        {"type": "object", "properties": {"namespace": TEXT, "a-b": WHOLE, "c.d": WHOLE, "e__f": WHOLE}},
        "self.__namespace__ == 'x' && self.a__dash__b == 1 && self.c__dot__d == 1 && self.e__underscores__f == 1",
    ),
    "nullable": ruled(struct(a={**LIMITS, "nullable": True}), "!has(self.a) || self.a == null"),
    "null": {**ruled(TEXT, "self == 'x'"), "nullable": True},
    "bytes": ruled(TEXT, "size(self) <= 3"),
    "letters": ruled(TEXT, "self.matches('^[a-c]+$')"),
    "texts": ruled(
        TEXT, "self.trim().upperAscii().replace('B', 'C').substring(1) == 'C' && self.split(',').size() < 3"
    ),
    "lists": ruled(listed(WHOLE), "self.isSorted() && self.sum() < 10 && self.max() - self.min() < 5"),
    "sets": ruled(listed(WHOLE), "sets.contains([1, 2, 3], self)"),
    "regex": ruled(TEXT, "self.find('[0-9]+') == '12' && self.findAll('[a-z]').size() == 1"),
    "amount": ruled(TEXT, "quantity(self).isGreaterThan(quantity('1Gi')) && quantity(self).isInteger()"),
    "address": ruled(TEXT, "isIP(self) && ip(self).family() == 4 && cidr('10.0.0.0/8').containsIP(self)"),
    "embedded": ruled(
        struct(spec=struct()) | {"x-kubernetes-embedded-resource": True},
        "self.kind == 'Pod' && self.metadata.name.startsWith('a')",
    ),
    "open": ruled(struct(a=WHOLE) | {"x-kubernetes-preserve-unknown-fields": True}, "self.a == 1"),
    "stable": ruled(struct() | {"x-kubernetes-preserve-unknown-fields": True}, "self == oldSelf"),
    "fixed": ruled(WHOLE, "self == oldSelf"),
    "growing": ruled(LIMITS, "self.max >= oldSelf.max"),
    "first": ruled(WHOLE, {"rule": "self < 5 || oldSelf.hasValue()", "optionalOldSelf": True}),
    "named": keyed(struct(size=ruled(WHOLE, "self >= oldSelf"))),
    "entries": mapped(ruled(WHOLE, "self >= oldSelf")),
    "unordered": ruled(
        struct(
            set=listed(TEXT, **{"x-kubernetes-list-type": "set"}), map=keyed(struct(size=WHOLE)), list=listed(WHOLE)
        ),
        "self == oldSelf",
    ),
    "whole": ruled(listed(LIMITS), "self.size() >= oldSelf.size()"),
}
SCHEMA = {
    "type": "object",
    "properties": {"spec": struct(**FIELDS), "status": struct(ready=ruled(WHOLE, "self < 5"))},
    "x-kubernetes-validations": [
        {"rule": "self.metadata.name != 'wrong'"},
        {"rule": "!self.metadata.name.startsWith('deep') || self.kind == 'X'", "fieldPath": ".spec.scalar"},
        {"rule": "!has(self.status) || !has(self.status.ready) || self.status.ready != 3"},
    ],
}
HELD = {"min": 1, "max": 2}
BROKEN = {"min": 2, "max": 1}

# What is created, and what it breaks: (reason, field), the field below `spec`.
CREATED: list[tuple[str, Any, list[tuple[str, str]]]] = [
    ("scalar", 2, []),
    ("scalar", 3, [(INVALID, "")]),
    ("object", HELD, []),
    ("object", BROKEN, [(INVALID, "")]),
    ("items", [HELD, BROKEN, BROKEN], [(INVALID, "[1]"), (INVALID, "[2]")]),
    ("values", {"a": HELD, "b": BROKEN}, [(INVALID, "[b]")]),
    ("deep", {"inner": {"x": ["a", "b"]}}, [(INVALID, ".inner[x][1]")]),
    ("message", "yes", []),
    ("message", "no", [(INVALID, "")]),
    ("spoken", BROKEN, [(INVALID, "")]),
    ("silent", HELD, [(INVALID, "")]),
    ("forbidden", "no", [("FieldValueForbidden", "")]),
    ("required", "no", [("FieldValueRequired", "")]),
    ("duplicate", "no", [("FieldValueDuplicate", "")]),
    ("field", {"inner": HELD}, []),
    ("field", {"inner": BROKEN}, [(INVALID, ".inner.min")]),
    ("entry", {"inner": {"a": 1}}, []),
    ("entry", {"inner": {"b": 1}}, [(INVALID, ".inner[a]")]),
    ("several", 2, [(INVALID, ""), (INVALID, "")]),
    ("number", 3, []),
    ("number", 1, [(INVALID, "")]),
    ("flexible", 4, []),
    ("flexible", "5%", []),
    ("flexible", "6%", [(INVALID, "")]),
    ("loose", "x", [(INVALID, "")]),
    ("since", "2026-01-02T03:04:05Z", []),
    ("since", "2025-12-31T23:59:59+02:00", [(INVALID, "")]),
    ("day", "2026-01-02", []),
    ("day", "2025-01-02", [(INVALID, "")]),
    ("wait", "30m", []),
    ("wait", "1h1s", [(INVALID, "")]),
    ("data", "aGVsbG8=", []),
    ("data", "aGVsbG9v", [(INVALID, "")]),
    ("timed", {"at": "2026-01-02T03:04:05Z"}, []),
    ("timed", {"at": "2025-01-02T03:04:05Z"}, [(INVALID, "")]),
    ("missing", {"a": 1}, []),
    ("missing", {"b": 1}, [(INVALID, "")]),
    ("present", {"b": 1}, []),
    ("present", {}, [(INVALID, "")]),
    ("optional", {}, []),
    ("optional", {"a": 2}, [(INVALID, "")]),
    ("divided", 5, []),
    ("divided", 0, [(INVALID, "")]),
    ("absorbed", [0, 2], []),
    ("absorbed", [0, 3], [(INVALID, "")]),
    ("escaped", {"namespace": "x", "a-b": 1, "c.d": 1, "e__f": 1}, []),
    ("escaped", {"namespace": "x", "a-b": 2, "c.d": 1, "e__f": 1}, [(INVALID, "")]),
    ("nullable", {"a": None}, []),
    ("nullable", {"a": HELD}, [(INVALID, "")]),
    ("null", None, []),
    ("null", "y", [(INVALID, "")]),
    ("bytes", "äöü", []),
    ("bytes", "abcd", [(INVALID, "")]),
    ("letters", "abc", []),
    ("letters", "abd", [(INVALID, "")]),
    ("texts", " ab", []),
    ("texts", "ad", [(INVALID, "")]),
    ("lists", [1, 2, 3], []),
    ("lists", [3, 2], [(INVALID, "")]),
    ("lists", [], [(INVALID, "")]),
    ("sets", [1, 3], []),
    ("sets", [1, 4], [(INVALID, "")]),
    ("regex", "a12", []),
    ("regex", "ab12", [(INVALID, "")]),
    ("amount", "2Gi", []),
    ("amount", "1G", [(INVALID, "")]),
    ("amount", "x", [(INVALID, "")]),
    ("address", "10.1.2.3", []),
    ("address", "11.1.2.3", [(INVALID, "")]),
    ("address", "::1", [(INVALID, "")]),
    ("embedded", {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "abc"}}, []),
    ("embedded", {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "bcd"}}, [(INVALID, "")]),
    ("open", {"a": 1, "b": {"c": [2**70, None]}}, []),
    ("open", {"a": 2, "b": 1}, [(INVALID, "")]),
    ("fixed", 1, []),
    ("first", 4, []),
    ("first", 6, [(INVALID, "")]),
    # A rule cannot rely on a value that does not have its type.
    ("object", {"min": "x"}, [("FieldValueTypeInvalid", ".min"), (INVALID, "<nil>")]),
]
# What is stored, what replaces it, and what that breaks.
REPLACED: list[tuple[str, Any, Any, list[tuple[str, str]]]] = [
    ("fixed", 1, 1, []),
    ("fixed", 1, 2, [(INVALID, "")]),
    ("growing", HELD, {"min": 1, "max": 3}, []),
    ("growing", HELD, {"min": 1, "max": 1}, [(INVALID, "")]),
    ("first", 4, 6, []),
    ("named", [{"name": "a", "size": 2}], [{"name": "b", "size": 1}, {"name": "a", "size": 2}], []),
    (
        "named",
        [{"name": "a", "size": 2}, {"name": "b", "size": 1}],
        [{"name": "b", "size": 1}, {"name": "a", "size": 1}],
        [(INVALID, "[1].size")],
    ),
    ("entries", {"a": 2}, {"b": 1}, []),
    ("entries", {"a": 2}, {"a": 1, "b": 1}, [(INVALID, "[a]")]),
    ("unordered", {"set": ["a", "b"]}, {"set": ["b", "a"]}, []),
    ("unordered", {"set": ["a", "b"]}, {"set": ["b", "c"]}, [(INVALID, "")]),
    (
        "unordered",
        {"map": [{"name": "a"}, {"name": "b", "size": 1}]},
        {"map": [{"name": "b", "size": 1}, {"name": "a"}]},
        [],
    ),
    (
        "unordered",
        {"map": [{"name": "a"}, {"name": "b"}]},
        {"map": [{"name": "b", "size": 1}, {"name": "a"}]},
        [(INVALID, "")],
    ),
    ("unordered", {"list": [1, 2]}, {"list": [2, 1]}, [(INVALID, "")]),
    ("stable", {"b": [1]}, {"b": [1]}, []),
    ("stable", {"b": [1]}, {"b": [2]}, [(INVALID, "")]),
    ("whole", [HELD], [HELD, HELD], []),
    ("whole", [HELD], [], [(INVALID, "")]),
]


@pytest.fixture
async def rulebooks(api: RawApi, ns: Space, install: Any) -> Space:
    """A namespace for objects of the kind whose schema is above; one kind per server."""
    if api.url not in _installed:
        _installed[api.url] = f"{ns}.rules.example.org"
        kind = crd("Rulebook", group=_installed[api.url], schema=SCHEMA, subresources={"status": {}})
        await install(api, kind)
    return ns


_installed: dict[str, str] = {}


def rulebook(api: RawApi, spec: dict[str, Any], name: str = "r") -> dict[str, Any]:
    group = _installed[api.url]
    return {"apiVersion": f"{group}/v1", "kind": "Rulebook", "metadata": {"name": name}, "spec": spec}


def path(api: RawApi, ns: Space, name: str = "") -> str:
    return ns.at(f"{_installed[api.url]}/v1", f"rulebooks/{name}" if name else "rulebooks")


def broken(answer: RawResponse) -> list[tuple[str, str]]:
    assert (answer.status == 422) == bool(answer.causes), answer.body
    return sorted((reason, field) for reason, field, _ in answer.causes)


def below_spec(name: str, causes: list[tuple[str, str]]) -> list[tuple[str, str]]:
    return sorted((reason, field if field == "<nil>" else f"spec.{name}{field}") for reason, field in causes)


@pytest.mark.parametrize(("name", "value", "causes"), CREATED)
async def test_what_is_created_holds_the_rules(api, rulebooks, name, value, causes):
    made = await api.post(path(api, rulebooks), rulebook(api, {name: value}))
    assert broken(made) == below_spec(name, causes), made.body


@pytest.mark.parametrize(("name", "old", "new", "causes"), REPLACED)
async def test_what_is_replaced_holds_the_transition_rules(api, rulebooks, name, old, new, causes):
    made = await api.post(path(api, rulebooks), rulebook(api, {name: old}))
    assert made.status == 201, made.body
    put = await api.put(path(api, rulebooks, "r"), {**made.body, "spec": {name: new}})
    assert broken(put) == below_spec(name, causes), put.body


async def test_messages_are_those_of_the_author(api, rulebooks):
    said = {}
    for name, value in {"message": "no", "spoken": BROKEN, "silent": HELD, "scalar": 3}.items():
        made = await api.post(path(api, rulebooks), rulebook(api, {name: value}))
        said[name] = made.causes[0][2].rpartition(": ")[2] if name != "scalar" else made.causes[0][2]
    assert said.pop("scalar").endswith("failed rule: self % 2 == 0")
    assert said == {"message": "not no", "spoken": "2 is over 1", "silent": "kept"}


async def test_rules_of_the_root_see_the_name_and_may_point_at_a_field(api, rulebooks):
    whole = await api.post(path(api, rulebooks), rulebook(api, {}, name="wrong"))
    assert broken(whole) == [(INVALID, "<nil>")]
    field = await api.post(path(api, rulebooks), rulebook(api, {}, name="deep"))
    assert broken(field) == [(INVALID, "spec.scalar")]


@pytest.mark.parametrize("content", ["merge", "json", "apply"])
async def test_patches_hold_the_rules(api, rulebooks, content):
    await api.post(path(api, rulebooks), rulebook(api, {"scalar": 2}))
    where = path(api, rulebooks, "r")
    if content == "apply":
        answer = await api.apply(where, rulebook(api, {"scalar": 3}), force=True)
    elif content == "merge":
        answer = await api.patch(where, {"spec": {"scalar": 3}}, MERGE_PATCH)
    else:
        answer = await api.patch(where, [{"op": "replace", "path": "/spec/scalar", "value": 3}], JSON_PATCH)
    assert broken(answer) == [(INVALID, "spec.scalar")]


async def test_a_status_holds_its_rules_and_those_of_the_root(api, rulebooks):
    made = await api.post(path(api, rulebooks), rulebook(api, {"scalar": 2}))
    where = path(api, rulebooks, "r/status")
    assert broken(await api.put(where, {**made.body, "status": {"ready": 5}})) == [(INVALID, "status.ready")]
    assert broken(await api.put(where, {**made.body, "status": {"ready": 3}})) == [(INVALID, "<nil>")]
    assert broken(await api.put(where, {**made.body, "status": {"ready": 1}})) == []


async def test_a_rule_whose_loops_take_too_long_is_stopped(api, ns, install):
    """Two loops over a list of 600: the estimate at the definition is within its limit, and the evaluation is not."""
    group = f"{ns}.slow.example.org"
    numbers = {"type": "array", "maxItems": 600, "items": WHOLE}
    rules = ("self.all(x, self.all(y, x + y >= 0))", "size(self) != 600")
    schema = {"type": "object", "properties": {"spec": struct(numbers=ruled(numbers, *rules))}}
    await install(api, crd("Slow", group=group, schema=schema))

    async def made(size: int) -> RawResponse:
        head = {"apiVersion": f"{group}/v1", "kind": "Slow", "metadata": {"name": f"of-{size}"}}
        return await api.post(ns.at(f"{group}/v1", "slows"), {**head, "spec": {"numbers": [1] * size}})

    assert (await made(50)).status == 201
    stopped = await made(600)
    assert broken(stopped) == [(INVALID, "spec.numbers")]
    assert "no further validation rules will be run due to call cost exceeds limit for rule" in stopped.body["message"]


async def test_an_unchanged_value_is_not_judged_again(api, ns, install):
    """The rule comes after the object; a change elsewhere is accepted, and a change of the value is not."""
    group = f"{ns}.late.example.org"
    schema = {"type": "object", "properties": {"spec": struct(limits=LIMITS, kept=listed(WHOLE), other=TEXT)}}
    await install(api, crd("Late", group=group, schema=schema))
    where = ns.at(f"{group}/v1", "lates")
    spec = {"limits": BROKEN, "kept": [1, 9]}
    made = await api.post(where, {"apiVersion": f"{group}/v1", "kind": "Late", "metadata": {"name": "l"}, "spec": spec})
    stored = await api.get(f"{CRDS}/lates.{group}")
    rules = schema["properties"]["spec"]["properties"] | {
        "limits": ruled(LIMITS, IN_ORDER),
        "kept": listed(ruled(WHOLE, "self < 5")),
    }
    stored.body["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"] = rules
    assert (await api.put(f"{CRDS}/lates.{group}", stored.body)).status == 200
    probe = {"apiVersion": f"{group}/v1", "kind": "Late", "metadata": {"name": "p"}, "spec": {"limits": BROKEN}}

    async def applies() -> bool:
        return (await api.post(where, probe, dryRun="All")).status == 422

    await eventually(applies)  # the real server reads the definition a moment later
    changed = await api.patch(f"{where}/l", {"spec": {"other": "x"}}, MERGE_PATCH)
    assert changed.status == 200, changed.body
    changed = await api.patch(f"{where}/l", {"spec": {"limits": {"max": 0}}}, MERGE_PATCH)
    assert broken(changed) == [(INVALID, "spec.limits")]
    changed = await api.patch(f"{where}/l", {"spec": {"kept": [1, 9, 2]}}, MERGE_PATCH)
    assert broken(changed) == [(INVALID, "spec.kept[1]")]
    assert made.status == 201


def at_rule(field: str = "rule", at: int = 0) -> str:
    return f"x-kubernetes-validations[{at}].{field}"


# A schema of `spec`, and what is wrong with it: (reason, field), the field below that schema.
REJECTED: list[tuple[str, dict[str, Any], list[tuple[str, str]]]] = [
    ("syntax", ruled(LIMITS, "self.min <"), [(INVALID, at_rule())]),
    ("an unknown field", ruled(LIMITS, "self.mni == 1"), [(INVALID, at_rule())]),
    ("an unknown field in has", ruled(LIMITS, "has(self.mni)"), [(INVALID, at_rule())]),
    ("types that do not fit", ruled(LIMITS, "self.min == 'a'"), [(INVALID, at_rule())]),
    ("an integer is not a double", ruled(LIMITS, "self.min == 1.0"), [(INVALID, at_rule())]),
    ("an unknown function", ruled(LIMITS, "frob(self.min)"), [(INVALID, at_rule())]),
    ("an unknown variable", ruled(LIMITS, "object.min == 1"), [(INVALID, at_rule())]),
    ("a regular expression", ruled(TEXT, "self.matches('[a-')"), [(INVALID, at_rule())]),
    ("a regular expression in a raw string", ruled(TEXT, 'self.matches(r"(?=a)")'), [(INVALID, at_rule())]),
    ("a duration", ruled(LIMITS, "duration('1 hour') > duration('1h')"), [(INVALID, at_rule())]),
    ("a time", ruled(LIMITS, "timestamp('2026') < timestamp('2026-01-02T03:04:05Z')"), [(INVALID, at_rule())]),
    ("a value that is not a bool", ruled(LIMITS, "self.min"), [(INVALID, at_rule())]),
    ("the metadata of a part", ruled(struct(), "self.metadata.labels == {}"), [(INVALID, at_rule())]),
    ("a rule of two", ruled(LIMITS, IN_ORDER, "self.x"), [(INVALID, at_rule(at=1))]),
    ("items", struct(a=listed(ruled(WHOLE, "self == ''"))), [(INVALID, f"properties[a].items.{at_rule()}")]),
    (
        "values",
        struct(a=mapped(ruled(TEXT, "self == 1"))),
        [(INVALID, f"properties[a].additionalProperties.{at_rule()}")],
    ),
    (
        "oldSelf in a list",
        struct(a=listed(ruled(WHOLE, "self == oldSelf"))),
        [(INVALID, f"properties[a].items.{at_rule()}")],
    ),
    (
        "oldSelf in a set",
        struct(a=listed(ruled(WHOLE, "self == oldSelf"), **{"x-kubernetes-list-type": "set"})),
        [(INVALID, f"properties[a].items.{at_rule()}")],
    ),
    (
        "optionalOldSelf",
        ruled(LIMITS, {"rule": IN_ORDER, "optionalOldSelf": True}),
        [(INVALID, at_rule("optionalOldSelf"))],
    ),
    (
        "oldSelf that is not taken as optional",
        ruled(LIMITS, {"rule": "self.min == oldSelf.min", "optionalOldSelf": True}),
        [(INVALID, at_rule()), (INVALID, at_rule("optionalOldSelf"))],
    ),
    (
        "a rule that is an expression only inside of another",
        ruled(LIMITS, {"rule": "oldSelf.hasValue()) || [1].all(x, true", "optionalOldSelf": True}),
        [(INVALID, at_rule()), (INVALID, at_rule("optionalOldSelf"))],
    ),
    ("an empty rule", ruled(LIMITS, " "), [("FieldValueRequired", at_rule())]),
    ("an empty message", ruled(LIMITS, {"rule": "true", "message": " "}), [(INVALID, at_rule("message"))]),
    ("a message of two lines", ruled(LIMITS, {"rule": "true", "message": "a\nb"}), [(INVALID, at_rule("message"))]),
    ("a rule of two lines", ruled(LIMITS, "true\n|| false"), [("FieldValueRequired", at_rule("message"))]),
    (
        "a message that is not a string",
        ruled(LIMITS, {"rule": "true", "messageExpression": "1"}),
        [(INVALID, at_rule("messageExpression"))],
    ),
    (
        "a message that does not compile",
        ruled(LIMITS, {"rule": "true", "messageExpression": "self.x"}),
        [(INVALID, at_rule("messageExpression"))],
    ),
    ("a reason", ruled(LIMITS, {"rule": "true", "reason": "Odd"}), [("FieldValueNotSupported", at_rule("reason"))]),
    ("a path", ruled(LIMITS, {"rule": "true", "fieldPath": ".odd"}), [(INVALID, at_rule("fieldPath"))]),
    (
        "a path into a list",
        ruled(struct(a=listed(WHOLE)), {"rule": "true", "fieldPath": ".a[0]"}),
        [(INVALID, at_rule("fieldPath"))],
    ),
    ("a default", struct(a={**ruled(WHOLE, "self > 5"), "default": 3}), [(INVALID, "properties[a].default")]),
]


@pytest.mark.parametrize(("what", "schema", "causes"), REJECTED, ids=[case[0] for case in REJECTED])
async def test_a_definition_with_a_wrong_rule_is_rejected_at_that_rule(api, ns, what, schema, causes):
    whole = {"type": "object", "properties": {"spec": schema}}
    made = await api.post(CRDS, crd("Wrong", group=f"{ns}.wrong.example.org", schema=whole), dryRun="All")
    prefix = "spec.validation.openAPIV3Schema.properties[spec]."
    assert broken(made) == sorted((reason, prefix + field) for reason, field in causes), made.body
