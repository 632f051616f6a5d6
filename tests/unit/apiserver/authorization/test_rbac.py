"""RBAC decisions: which rule is enough for which request, and who has it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steersman.apiserver.authorization.escalation import describe_rule, uncovered
from steersman.apiserver.authorization.rbac import RBACPolicy, policy_rule, rule_allows
from steersman.apiserver.authorization.request_attributes import RequestAttributes
from steersman.kube.api.types.authorization import UserInfo
from tests.support.rbac import account, binding, group, role, rule, urls, user

FRED = UserInfo(username="fred", groups=["devs"])
BUILDER = UserInfo(username="system:serviceaccount:ci:builder")
PODS = rule("pods", "list")
ANY = {"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}


def ask(verb="list", resource="pods", **fields):
    return RequestAttributes(verb=verb, resource=resource, **fields)


def page(path, verb="get"):
    return RequestAttributes(verb=verb, path=path)


@pytest.mark.parametrize(
    ("granted", "asked", "allowed"),
    [
        (PODS, ask(), True),
        (PODS, ask("watch"), False),
        (PODS, ask(resource="secrets"), False),
        (PODS, ask(group="metrics.k8s.io"), False),
        (PODS, ask(subresource="log"), False),
        (rule("pods/log", "get"), ask("get", subresource="log"), True),
        (rule("pods/log", "get"), ask("get"), False),
        (rule("*/scale", "get"), ask("get", "deployments", subresource="scale"), True),
        (rule("*/scale", "get"), ask("get", "deployments"), False),
        (rule("*", "get"), ask("get", subresource="log"), True),
        (rule("pods", "*"), ask("impersonate"), True),
        (ANY, ask("list", "things", group="example.org"), True),
        (ANY, page("/metrics"), False),
        (rule("pods", "get", names=("web",)), ask("get", name="web"), True),
        (rule("pods", "get", names=("web",)), ask("get", name="db"), False),
        (rule("pods", "create", names=("web",)), ask("create"), False),
        (urls("/healthz"), page("/healthz"), True),
        (urls("/healthz"), page("/healthz/etcd"), False),
        (urls("/healthz/*"), page("/healthz/etcd"), True),
        (urls("*"), page("/metrics"), True),
        (urls("*"), page("/metrics", verb="post"), False),
        (urls("*"), ask("get"), False),
    ],
)
def test_a_rule_allows_what_its_verbs_groups_resources_names_and_paths_say(granted, asked, allowed):
    assert rule_allows(policy_rule(granted), asked) is allowed


@pytest.mark.parametrize(
    ("subject", "who", "allowed"),
    [
        (user("fred"), FRED, True),
        (user("devs"), FRED, False),
        (group("devs"), FRED, True),
        (group("fred"), FRED, False),
        (account("builder", "ci"), BUILDER, True),
        (account("builder"), BUILDER, True),  # the namespace of the binding
        (account("builder", "shop"), BUILDER, False),
        (user("system:serviceaccount:ci:builder"), BUILDER, True),
    ],
)
def test_a_binding_gives_its_role_to_its_subjects_only(subject, who, allowed):
    policy = RBACPolicy([role("reader", PODS, namespace="ci")], [binding("b", subject, role="reader", namespace="ci")])
    assert policy.authorize(who, ask(namespace="ci")).allowed is allowed


def test_a_role_binding_gives_a_cluster_role_in_its_namespace_only():
    policy = RBACPolicy(
        [role("reader", PODS)], [binding("b", user("fred"), role="reader", namespace="shop", kind="ClusterRole")]
    )
    found = {place: policy.authorize(FRED, ask(namespace=place)).allowed for place in ("shop", "other", "")}
    assert found == {"shop": True, "other": False, "": False}


def test_a_cluster_role_binding_holds_in_every_namespace_and_at_the_cluster_scope():
    policy = RBACPolicy([role("reader", PODS)], [binding("b", user("fred"), role="reader")])
    assert all(policy.authorize(FRED, ask(namespace=place)).allowed for place in ("shop", ""))


def test_a_cluster_role_binding_cannot_give_the_role_of_a_namespace():
    policy = RBACPolicy(
        [role("reader", PODS, namespace="shop")], [binding("b", user("fred"), role="reader", kind="Role")]
    )
    assert not policy.authorize(FRED, ask(namespace="shop")).allowed


def test_the_reason_names_the_binding_that_allows():
    roles = [role("reader", PODS), role("local", rule("pods", "get"), namespace="shop")]
    bindings = [
        binding("wide", group("devs"), role="reader"),
        binding("near", account("builder", "ci"), role="local", namespace="shop"),
    ]
    policy = RBACPolicy(roles, bindings)
    assert [
        policy.authorize(FRED, ask()).reason,
        policy.authorize(BUILDER, ask("get", namespace="shop")).reason,
        policy.authorize(FRED, ask("get")).reason,
    ] == [
        'RBAC: allowed by ClusterRoleBinding "wide" of ClusterRole "reader" to Group "devs"',
        'RBAC: allowed by RoleBinding "near/shop" of Role "local" to ServiceAccount "builder/ci"',
        "",
    ]


def test_a_missing_role_is_named_and_takes_nothing_from_the_others():
    bindings = [binding("a", user("fred"), role="gone"), binding("b", user("fred"), role="reader")]
    policy = RBACPolicy([role("reader", PODS)], bindings)
    assert policy.authorize(FRED, ask()).allowed
    assert policy.authorize(FRED, ask("get")).reason == 'RBAC: clusterrole.rbac.authorization.k8s.io "gone" not found'
    assert policy.rules_for(FRED, "") == (
        [policy_rule(PODS)],
        'clusterrole.rbac.authorization.k8s.io "gone" not found',
    )


@pytest.mark.parametrize(
    ("held", "granted", "missing"),
    [
        (PODS, PODS, []),
        (PODS, rule("pods", "list", names=("a",)), []),
        (rule("pods", "list", names=("a",)), PODS, [PODS]),
        (
            rule("pods", "list", names=("a",)),
            rule("pods", "list", names=("a", "b")),
            [rule("pods", "list", names=("b",))],
        ),
        (rule("*", "list"), rule("pods/log", "list"), []),
        (PODS, rule("*", "list"), [rule("*", "list")]),
        (rule("*/log", "get"), rule("pods/log", "get", "list"), [rule("pods/log", "list")]),
        (PODS, rule(["pods", "nodes"], "get", "list"), [rule("pods", "get"), rule("nodes", "get", "list")]),
        (urls("/x/*"), urls("/x/y"), []),
        (urls("/x"), urls("/x/*"), [urls("/x/*")]),
        (ANY, urls("/x"), [urls("/x")]),
    ],
)
def test_what_is_granted_and_not_held_is_uncovered(held, granted, missing):
    found = uncovered([policy_rule(held)], [policy_rule(granted)])
    assert sorted(map(describe_rule, found)) == sorted(describe_rule(policy_rule(row)) for row in missing)


# Properties

NAMES = ("a", "b")
few = lambda *values: st.lists(st.sampled_from(values), min_size=1, max_size=2, unique=True)  # noqa: E731
RULES = st.builds(
    lambda verbs, groups, resources, names: {
        "verbs": verbs,
        "apiGroups": groups,
        "resources": resources,
        "resourceNames": names,
    },
    few("get", "list", "*"),
    few("", "apps", "*"),
    few("pods", "pods/log", "*/log", "*"),
    st.lists(st.sampled_from(NAMES), max_size=1),
) | st.builds(lambda paths, verbs: urls(*paths, verbs=tuple(verbs)), few("/x", "/x/*", "*"), few("get", "*"))
QUESTIONS = st.builds(
    RequestAttributes,
    verb=st.sampled_from(("get", "list", "delete")),
    group=st.sampled_from(("", "apps")),
    resource=st.sampled_from(("pods", "nodes")),
    subresource=st.sampled_from(("", "log")),
    name=st.sampled_from(("", *NAMES)),
    namespace=st.sampled_from(("", "shop")),
) | st.builds(RequestAttributes, verb=st.sampled_from(("get", "post")), path=st.sampled_from(("/x", "/x/y", "/z")))
SUBJECTS = st.sampled_from((user("fred"), user("eve"), group("devs"), account("fred", "shop")))


@given(st.lists(RULES, max_size=4), st.lists(RULES, max_size=3), QUESTIONS)
def test_what_covered_rules_allow_is_allowed_by_the_rules_that_cover_them(held, granted, asked):
    held, granted = [policy_rule(row) for row in held], [policy_rule(row) for row in granted]
    if not uncovered(held, granted) and any(rule_allows(row, asked) for row in granted):
        assert any(rule_allows(row, asked) for row in held)


@given(st.lists(RULES, max_size=3), st.lists(RULES, max_size=3))
def test_rules_cover_themselves_and_what_is_uncovered_covers_the_rest(held, granted):
    held, granted = [policy_rule(row) for row in held], [policy_rule(row) for row in granted]
    assert uncovered(granted, granted) == []
    assert uncovered([*held, *uncovered(held, granted)], granted) == []


@given(
    st.lists(st.tuples(RULES, SUBJECTS, st.sampled_from(("", "shop", "other"))), max_size=6),
    QUESTIONS,
    st.sampled_from((FRED, UserInfo(username="eve"), UserInfo(username="system:serviceaccount:shop:fred"))),
)
def test_a_request_is_allowed_exactly_when_a_rule_bound_to_the_user_in_its_scope_allows_it(grants, asked, who):
    roles = [role(f"r{number}", row) for number, (row, _, _) in enumerate(grants)]
    bindings = [
        binding(f"b{number}", subject, role=f"r{number}", namespace=place, kind="ClusterRole")
        for number, (_, subject, place) in enumerate(grants)
    ]
    expected = any(
        rule_allows(policy_rule(row), asked) and place in {"", asked.namespace} and _is(subject, who)
        for row, subject, place in grants
    )
    assert RBACPolicy(roles, bindings).authorize(who, asked).allowed is expected


def _is(subject, who):
    match subject["kind"]:
        case "Group":
            return subject["name"] in who.groups
        case "ServiceAccount":
            return who.username == f"system:serviceaccount:{subject['namespace']}:{subject['name']}"
    return who.username == subject["name"]
