"""Who may do what: RBAC, escalation, impersonation and access reviews, on both servers."""

from __future__ import annotations

from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any

import pytest

from steersman.testing.raw_api import RawApi, ssl_context
from tests.support.manifests import configmap, deployment
from tests.support.rbac import RBAC, ROLES, account, binding, group, role, rule, urls, user
from tests.support.webhooks import WebhookStub, patch
from tests.support.webhooks import rule as reviewed

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from steersman.apiserver import EmbeddedServer
    from steersman.testing.controlplane.launcher import ControlPlane
    from steersman.testing.raw_api import ApiServer
    from tests.support.manifests import Space

REVIEWS = "/apis/authorization.k8s.io/v1"
WHO_AM_I = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
NOT_HELD = "is attempting to grant RBAC permissions not currently held"
EVERYTHING = {"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}
Rule = dict[str, Any]
Act = Any  # `await fred(rule(…))`


def raw(server: ApiServer, token: str | None = None, **headers: str) -> RawApi:
    return RawApi(server.url, token=token, ssl_context=ssl_context(server.ca_pem), headers=headers)


@pytest.fixture
async def fred(cluster: ApiServer, api: RawApi, ns: Space) -> AsyncIterator[Act]:
    """`await fred(rule(…), wide=[rule(…)])`: requests of a user with these rights, in the namespace and everywhere."""
    name = f"fred-{ns}"
    async with AsyncExitStack() as stack:

        async def act(*rules: Rule, wide: list[Rule] | None = None) -> RawApi:
            own = await stack.enter_async_context(raw(cluster, cluster.token, **{"Impersonate-User": name}))
            await bind(api, user(name), rules, namespace=ns)
            await bind(api, user(name), wide or [], namespace="")
            await in_force(own, [*rules, *(wide or [])], ns)
            return own

        yield act


async def bind(api: RawApi, subject: Rule, rules: Any, *, namespace: str) -> None:
    if not rules:
        return
    scope, name = f"/namespaces/{namespace}/" if namespace else "/cluster", subject["name"]
    for plural, body in (
        ("roles", role(name, *rules, namespace=namespace)),
        ("rolebindings", binding(name, subject, role=name, namespace=namespace)),
    ):
        made = await api.post(f"{ROLES}{scope}{plural}", body)
        assert made.status == 201, made.body


async def in_force(own: RawApi, rules: list[Rule], namespace: str) -> None:
    """A real server learns of new roles through a watch of its own."""
    held: list[Rule] = []
    while not all(row in held for row in rules):
        review = await own.post(f"{REVIEWS}/selfsubjectrulesreviews", {"spec": {"namespace": namespace}})
        status = review.body["status"]
        held = [*(status["resourceRules"] or ()), *(status["nonResourceRules"] or ())]


def error(answer: Any) -> tuple[int, str, Any]:
    return answer.status, answer.body.get("reason", ""), answer.body.get("details")


# Requests


@pytest.mark.parametrize(
    ("path", "details", "about", "denied"),
    [
        (
            "/apis/apps/v1/namespaces/shop/deployments",
            {"group": "apps", "kind": "deployments"},
            "deployments.apps is ",
            'list resource "deployments" in API group "apps" in the namespace "shop"',
        ),
        (
            "/api/v1/namespaces/shop/pods/web/log",
            {"name": "web", "kind": "pods"},
            'pods "web" is ',
            'get resource "pods/log" in API group "" in the namespace "shop"',
        ),
        (
            "/api/v1/namespaces/shop",
            {"name": "shop", "kind": "namespaces"},
            'namespaces "shop" is ',
            'get resource "namespaces" in API group "" in the namespace "shop"',
        ),
        (
            "/api/v1/nodes?watch=true",
            {"kind": "nodes"},
            "nodes is ",
            'watch resource "nodes" in API group "" at the cluster scope',
        ),
        (
            "/apis/no.such.group/v1/things/a",
            {"name": "a", "group": "no.such.group", "kind": "things"},
            'things.no.such.group "a" is ',
            'get resource "things" in API group "no.such.group" at the cluster scope',
        ),
        ("/metrics", {}, "", 'get path "/metrics"'),
    ],
)
async def test_what_no_rule_allows_is_forbidden_whether_or_not_it_exists(
    cluster: ApiServer, path: str, details: Rule, about: str, denied: str
):
    async with raw(cluster, cluster.token, **{"Impersonate-User": "eve <eve@x>"}) as eve:
        got = await eve.get(path)
    assert error(got) == (403, "Forbidden", details)
    assert got.body["message"] == f'{about}forbidden: User "eve &lt;eve@x&gt;" cannot {denied}'


async def test_a_role_allows_its_verbs_in_its_namespace_only(fred: Act, ns: Space):
    own = await fred(rule("configmaps", "get", "list", "create"))
    assert (await own.post(ns.core("configmaps"), configmap("a"))).status == 201
    found = [
        await own.get(ns.core("configmaps/a")),
        await own.get(ns.core("configmaps")),
        await own.get("/api/v1/configmaps"),
        await own.get("/api/v1/namespaces/default/configmaps"),
        await own.delete(ns.core("configmaps/a")),
        await own.delete(ns.core("configmaps")),
    ]
    assert [answer.status for answer in found] == [200, 200, 403, 403, 403, 403]


async def test_a_rule_with_names_allows_a_list_that_selects_the_name(fred: Act, ns: Space):
    own = await fred(rule("configmaps", "get", "list", names=("a",)))
    found = [
        await own.get(ns.core("configmaps/a")),
        await own.get(ns.core("configmaps"), fieldSelector="metadata.name=a"),
        await own.get(ns.core("configmaps"), fieldSelector="metadata.name=b"),
        await own.get(ns.core("configmaps")),
    ]
    assert [answer.status for answer in found] == [404, 200, 403, 403]


async def test_a_subresource_needs_a_rule_of_its_own(api: RawApi, fred: Act, ns: Space):
    own = await fred(rule("deployments.apps", "*"))
    await api.post(ns.at("apps/v1", "deployments"), deployment("web"))
    path = ns.at("apps/v1", "deployments/web")
    answers = [await own.get(path), await own.get(path + "/scale"), await own.patch(path + "/status", {})]
    assert [answer.status for answer in answers] == [200, 403, 403]


@pytest.mark.parametrize("verb", ["apply", "put"])
async def test_a_write_that_creates_needs_the_right_to_create(fred: Act, ns: Space, verb: str):
    plural = {"apply": "configmaps", "put": "leases.coordination.k8s.io"}[verb]
    own = await fred(rule(plural, "patch", "update"))
    if verb == "apply":
        got = await own.apply(ns.core("configmaps/a"), configmap("a"))
    else:
        lease = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "a"}}
        got = await own.put(ns.at("coordination.k8s.io/v1", "leases/a"), lease)
    assert got.status == 403
    assert f'cannot create resource "{plural.partition(".")[0]}" in API group' in got.body["message"]


async def test_a_change_of_rights_counts_from_then_on(api: RawApi, fred: Act, ns: Space):
    own = await fred(rule("configmaps", "list"))
    name = f"fred-{ns}"
    await api.delete(f"{ROLES}/namespaces/{ns}/rolebindings/{name}")
    await own.eventually(ns.core("configmaps"), lambda answer: answer.status == 403)


async def test_everyone_may_discover_and_anonymous_users_read_health_and_version(cluster: ApiServer):
    async with raw(cluster) as nameless, raw(cluster, cluster.token, **{"Impersonate-User": "x"}) as stranger:
        paths = ("/version", "/healthz", "/api", "/apis/apps/v1", "/openapi/v3", "/api/v1/pods")
        found = {path: ((await nameless.get(path)).status, (await stranger.get(path)).status) for path in paths}
    assert found == {
        "/version": (200, 200),
        "/healthz": (200, 200),
        "/api": (403, 200),
        "/apis/apps/v1": (403, 200),
        "/openapi/v3": (403, 200),
        "/api/v1/pods": (403, 403),
    }


async def test_the_view_role_shows_everything_but_secrets(api: RawApi, cluster: ApiServer, pods: Space):
    made = binding("v", account("default", pods), role="view", namespace=pods, kind="ClusterRole")
    assert (await api.post(f"{ROLES}/namespaces/{pods}/rolebindings", made)).status == 201
    token = (await api.post(pods.core("serviceaccounts/default/token"), {"spec": {}})).body["status"]["token"]
    async with raw(cluster, token) as viewer:
        await viewer.eventually(pods.core("pods"), lambda answer: answer.status == 200)
        found = [await viewer.get(pods.core("secrets")), await viewer.post(pods.core("configmaps"), configmap("a"))]
    assert [answer.status for answer in found] == [403, 403]


async def test_the_embedded_server_starts_with_the_roles_of_the_real_one(embedded: EmbeddedServer, real: ControlPlane):
    async with raw(embedded, embedded.token) as ours, raw(real, real.token) as theirs:
        for plural in ("clusterroles", "clusterrolebindings", "roles", "rolebindings"):
            query = {"labelSelector": "kubernetes.io/bootstrapping=rbac-defaults"}
            expected = shown(await ours.get(f"{ROLES}/{plural}", **query))
            # its controller fills the aggregated roles a moment after the start
            await theirs.eventually(f"{ROLES}/{plural}", lambda got, want=expected: shown(got) == want, **query)


def shown(listed: Any) -> list[Rule]:
    """The items of a list, without what differs from server to server."""
    own = {"uid", "creationTimestamp", "resourceVersion", "managedFields"}
    return [
        {**item, "metadata": {key: value for key, value in item["metadata"].items() if key not in own}}
        for item in listed.body["items"]
    ]


# Escalation


async def test_a_role_cannot_grant_more_than_its_writer_holds(fred: Act, ns: Space):
    own = await fred(rule("roles.rbac.authorization.k8s.io", "create", "update", "patch"), rule("pods", "get", "list"))
    roles = f"{ROLES}/namespaces/{ns}/roles"
    held = await own.post(roles, role("held", rule("pods", "list"), namespace=ns))
    more = await own.post(roles, role("more", rule(["pods", "secrets"], "get", "watch"), namespace=ns))
    assert (held.status, error(more)) == (
        201,
        (403, "Forbidden", {"name": "more", "group": "rbac.authorization.k8s.io", "kind": "roles"}),
    )
    assert NOT_HELD in more.body["message"]
    assert more.body["message"].splitlines()[1:] == [
        '{APIGroups:[""], Resources:["pods"], Verbs:["watch"]}',
        '{APIGroups:[""], Resources:["secrets"], Verbs:["get" "watch"]}',
    ]
    grown = await own.patch(f"{roles}/held", {"rules": [rule("secrets", "get")]})
    put = await own.put(f"{roles}/held", role("held", rule("secrets", "get"), namespace=ns))
    applied = await own.apply(f"{roles}/new", role("new", rule("secrets", "get"), namespace=ns))
    assert [answer.status for answer in (grown, put, applied)] == [403, 403, 403]


async def test_finalizers_of_a_role_change_without_its_rights(api: RawApi, fred: Act, ns: Space):
    own = await fred(rule("roles.rbac.authorization.k8s.io", "patch"))
    path = f"{ROLES}/namespaces/{ns}/roles/more"
    await api.post(f"{ROLES}/namespaces/{ns}/roles", role("more", rule("secrets", "get"), namespace=ns))
    assert (await own.patch(path, {"metadata": {"finalizers": ["example.org/x"]}})).status == 200
    assert (await own.patch(path, {"metadata": {"labels": {"a": "b"}}})).status == 403
    assert (await api.patch(path, {"metadata": {"finalizers": None}})).status == 200


async def test_what_a_webhook_adds_to_a_role_must_be_held_too(api: RawApi, fred: Act, ns: Space):
    own = await fred(rule("roles.rbac.authorization.k8s.io", "create", "patch"))
    roles = f"{ROLES}/namespaces/{ns}/roles"
    await own.post(roles, role("old", namespace=ns))
    async with WebhookStub() as stub:
        stub.on("/grow", lambda _: patch({"op": "add", "path": "/rules", "value": [rule("secrets", "get")]}))
        await stub.configure(api, ns, mutating=[stub.webhook("/grow", reviewed("roles", group=RBAC))])
        made = await own.post(roles, role("new", namespace=ns))
        changed = await own.patch(f"{roles}/old", {"metadata": {"labels": {"a": "b"}}})
    assert [(answer.status, NOT_HELD in answer.body["message"]) for answer in (made, changed)] == [(403, True)] * 2


@pytest.mark.parametrize(
    ("reference", "status"),
    [
        ({}, 500),
        ({"apiGroup": RBAC, "kind": "Role"}, 400),
        ({"apiGroup": RBAC, "name": "x"}, 500),
        ({"apiGroup": RBAC, "kind": "Thing", "name": "x"}, 500),
    ],
)
async def test_a_binding_without_a_role_cannot_be_checked(fred: Act, ns: Space, reference: Any, status: int):
    own = await fred(rule("rolebindings.rbac.authorization.k8s.io", "create"))
    body = {"metadata": {"name": "a"}, "roleRef": reference}
    assert (await own.post(f"{ROLES}/namespaces/{ns}/rolebindings", body)).status == status


async def test_the_verb_escalate_allows_to_grant_what_is_not_held(fred: Act, ns: Space):
    own = await fred(rule("roles.rbac.authorization.k8s.io", "create", "escalate"))
    assert (
        await own.post(f"{ROLES}/namespaces/{ns}/roles", role("more", rule("secrets", "get"), namespace=ns))
    ).status == 201


async def test_a_binding_needs_the_rights_of_its_role_or_the_verb_bind(api: RawApi, fred: Act, ns: Space):
    own = await fred(
        rule("rolebindings.rbac.authorization.k8s.io", "create"),
        rule("roles.rbac.authorization.k8s.io", "bind", names=("bindable",)),
        rule("pods", "list"),
    )
    for name, row in (("bindable", rule("secrets", "get")), ("held", rule("pods", "list")), ("more", EVERYTHING)):
        await api.post(f"{ROLES}/namespaces/{ns}/roles", role(name, row, namespace=ns))
    await known_roles(api, ns, "bindable", "held", "more")
    bindings = f"{ROLES}/namespaces/{ns}/rolebindings"
    answers = {
        name: await own.post(bindings, binding(name, user("x"), role=name, namespace=ns))
        for name in ("bindable", "held", "more", "gone")
    }
    assert {name: answer.status for name, answer in answers.items()} == {
        "bindable": 201,
        "held": 201,
        "more": 403,
        "gone": 404,
    }
    assert NOT_HELD in answers["more"].body["message"]
    assert error(answers["gone"])[2]["name"] == "gone"


async def known_roles(api: RawApi, ns: Space, *names: str) -> None:
    """Wait until the authorizer of a real server knows these roles: their rules are those of a user bound to them."""
    for name in names:
        made = await api.post(
            f"{ROLES}/namespaces/{ns}/rolebindings",
            binding(f"probe-{name}", user(f"probe-{ns}-{name}"), role=name, namespace=ns),
        )
        assert made.status == 201
        review = {"spec": {"namespace": ns}}
        probe = {"Impersonate-User": f"probe-{ns}-{name}"}
        rules = (await api.get(f"{ROLES}/namespaces/{ns}/roles/{name}")).body["rules"]
        held: list[Rule] = []
        while rules[0] not in held:
            got = await api.post(f"{REVIEWS}/selfsubjectrulesreviews", review, headers=probe)
            held = got.body["status"]["resourceRules"]


async def test_only_cluster_admins_make_aggregated_roles(fred: Act, ns: Space):
    own = await fred(wide=[rule("clusterroles.rbac.authorization.k8s.io", "create")])
    aggregated = role(f"sum-{ns}", aggregationRule={"clusterRoleSelectors": [{"matchLabels": {"a": "b"}}]})
    got = await own.post(f"{ROLES}/clusterroles", aggregated)
    assert got.status == 403
    assert got.body["message"].endswith("must have cluster-admin privileges to use the aggregationRule")


async def test_an_aggregated_role_has_the_rules_of_the_roles_its_selectors_match(api: RawApi, ns: Space):
    label = {f"sum-{ns}": "true"}
    aggregated = role(f"sum-{ns}", aggregationRule={"clusterRoleSelectors": [{"matchLabels": label}]})
    assert (await api.post(f"{ROLES}/clusterroles", aggregated)).status == 201
    for name, rows in ((f"b-{ns}", [rule("pods", "list")]), (f"a-{ns}", [rule("nodes", "get"), rule("pods", "list")])):
        await api.post(f"{ROLES}/clusterroles", role(name, *rows, metadata={"labels": label}))
    path = f"{ROLES}/clusterroles/sum-{ns}"
    both = [rule("nodes", "get"), rule("pods", "list")]
    got = await api.eventually(path, lambda answer: answer.body["rules"] == both)
    managers = {entry["manager"]: entry["operation"] for entry in got.body["metadata"]["managedFields"]}
    assert managers["clusterrole-aggregation-controller"] == "Apply"
    await api.delete(f"{ROLES}/clusterroles/a-{ns}")
    await api.eventually(path, lambda answer: answer.body["rules"] == [rule("pods", "list")])


@pytest.mark.parametrize(
    ("selectors", "fields"),
    [
        ([], ["aggregationRule.clusterRoleSelectors"]),
        (
            [{"matchExpressions": [{"key": "a", "operator": "Odd"}]}],
            [
                "aggregationRule.clusterRoleSelectors[0].matchExpressions[0].operator",
                "aggregationRule.clusterRoleSelectors[0]",
            ],
        ),
    ],
)
async def test_an_aggregated_role_needs_valid_selectors(api: RawApi, ns: Space, selectors: Any, fields: Any):
    body = role(f"bad-{ns}", aggregationRule={"clusterRoleSelectors": selectors})
    got = await api.post(f"{ROLES}/clusterroles", body)
    assert (got.status, [field for _, field, _ in got.causes]) == (422, fields)


# Reviews


async def test_access_reviews_answer_as_requests_are_answered(api: RawApi, fred: Act, ns: Space):
    own = await fred(rule("pods", "list", names=("web",)), wide=[urls("/metrics")])
    name = f"fred-{ns}"

    def asked(**attributes: str) -> Rule:
        return {"resourceAttributes": {"verb": "list", "resource": "pods", "namespace": ns, **attributes}}

    page = {"nonResourceAttributes": {"verb": "get", "path": "/metrics"}}
    mine = [
        (await own.post(f"{REVIEWS}/selfsubjectaccessreviews", {"spec": spec})).body["status"]
        for spec in (asked(name="web"), asked(), page)
    ]
    theirs = [
        (await api.post(f"{REVIEWS}/subjectaccessreviews", {"spec": {**spec, "user": name}})).body["status"]
        for spec in (asked(name="web"), asked(), page)
    ]
    assert mine == theirs
    assert mine == [
        {"allowed": True, "reason": f'RBAC: allowed by RoleBinding "{name}/{ns}" of Role "{name}" to User "{name}"'},
        {"allowed": False},
        {
            "allowed": True,
            "reason": f'RBAC: allowed by ClusterRoleBinding "{name}" of ClusterRole "{name}" to User "{name}"',
        },
    ]


async def test_a_review_is_about_exactly_the_groups_it_names(api: RawApi):
    page = {"nonResourceAttributes": {"verb": "get", "path": "/api"}}
    answers = [
        (await api.post(f"{REVIEWS}/subjectaccessreviews", {"spec": {**page, **who}})).body["status"]["allowed"]
        for who in ({"user": "x"}, {"groups": ["system:authenticated"]}, {"groups": ["system:masters"]})
    ]
    assert answers == [False, True, True]


async def test_a_role_that_does_not_exist_is_the_reason_of_a_denial(api: RawApi, ns: Space):
    made = await api.post(f"{ROLES}/namespaces/{ns}/rolebindings", binding("b", user(ns), role="gone", namespace=ns))
    assert made.status == 201
    spec = {"user": ns, "resourceAttributes": {"verb": "get", "resource": "pods", "namespace": ns}}
    status: Rule = {}
    while "reason" not in status:
        status = (await api.post(f"{REVIEWS}/subjectaccessreviews", {"spec": spec})).body["status"]
    assert status["allowed"] is False
    assert status["reason"] == 'RBAC: role.rbac.authorization.k8s.io "gone" not found'


@pytest.mark.parametrize(
    ("review", "spec", "code", "causes"),
    [
        ("subjectaccessreviews", {"resourceAttributes": {"verb": "get"}}, 422, [("FieldValueInvalid", "spec.user")]),
        ("subjectaccessreviews", {"user": "x"}, 422, [("FieldValueInvalid", "spec.resourceAttributes")]),
        (
            "namespaces/default/localsubjectaccessreviews",
            {"user": "x", "resourceAttributes": {"verb": "get", "namespace": "other"}},
            422,
            [("FieldValueInvalid", "spec.resourceAttributes.namespace")],
        ),
        (
            "namespaces/default/localsubjectaccessreviews",
            {"user": "x", "nonResourceAttributes": {"verb": "get", "path": "/x"}},
            422,
            [("FieldValueInvalid", "spec.nonResourceAttributes")],
        ),
        ("selfsubjectrulesreviews", {}, 400, []),
    ],
)
async def test_a_review_of_nothing_is_rejected(api: RawApi, review: str, spec: Rule, code: int, causes: Any):
    got = await api.post(f"{REVIEWS}/{review}", {"spec": spec})
    assert (got.status, [cause[:2] for cause in got.causes] if causes else []) == (code, causes)


async def test_a_local_review_answers_for_its_namespace(api: RawApi, fred: Act, ns: Space):
    await fred(rule("pods", "get"))
    spec = {"user": f"fred-{ns}", "resourceAttributes": {"verb": "get", "resource": "pods", "namespace": ns}}
    got = await api.post(f"{REVIEWS}/namespaces/{ns}/localsubjectaccessreviews", {"spec": spec})
    assert (got.status, got.body["status"]["allowed"]) == (201, True)


# Impersonation


@pytest.mark.parametrize(
    ("headers", "seen"),
    [
        ({"Impersonate-User": "x"}, {"username": "x", "groups": ["system:authenticated"]}),
        (
            {"Impersonate-User": "x", "Impersonate-Group": "devs", "Impersonate-Uid": "7"},
            {"username": "x", "uid": "7", "groups": ["devs", "system:authenticated"]},
        ),
        (
            {"Impersonate-User": "x", "Impersonate-Extra-Acme.com%2FProject": "p"},
            {"username": "x", "groups": ["system:authenticated"], "extra": {"acme.com/project": ["p"]}},
        ),
        (
            {"Impersonate-User": "system:serviceaccount:shop:web"},
            {
                "username": "system:serviceaccount:shop:web",
                "groups": ["system:serviceaccounts", "system:serviceaccounts:shop", "system:authenticated"],
            },
        ),
        (
            {"Impersonate-User": "system:anonymous", "Impersonate-Group": "system:masters"},
            {"username": "system:anonymous", "groups": ["system:masters", "system:unauthenticated"]},
        ),
    ],
)
async def test_a_request_is_made_as_the_user_that_its_headers_name(api: RawApi, headers: Any, seen: Rule):
    got = await api.post(WHO_AM_I, {}, headers=headers)
    assert (got.status, got.body["status"]["userInfo"]) == (201, seen)


async def test_groups_without_a_user_are_rejected(api: RawApi):
    got = await api.get("/api/v1/pods", headers={"Impersonate-Group": "devs"})
    assert (got.status, got.body["reason"]) == (400, "BadRequest")


async def test_every_part_of_an_impersonated_identity_needs_the_verb_impersonate(
    api: RawApi, cluster: ApiServer, pods: Space
):
    name = f"system:serviceaccount:{pods}:default"
    rules = [
        rule("users", "impersonate", names=("fred",)),
        rule("groups", "impersonate", names=("devs",)),
        rule("userextras.authentication.k8s.io/scopes", "impersonate", names=("a",)),
    ]
    await bind(api, user(name), rules, namespace="")
    token = (await api.post(pods.core("serviceaccounts/default/token"), {"spec": {}})).body["status"]["token"]
    fred = {"Impersonate-User": "fred"}
    async with raw(cluster, token) as own:
        await in_force(own, rules, pods)

        async def answer(**headers: str) -> Any:
            shown = {f"Impersonate-{key.replace('_', '-')}": value for key, value in headers.items()}
            got = await own.post(WHO_AM_I, {}, headers=shown)
            return got.body["message"].partition(" is forbidden")[0] if got.status == 403 else got.status

        assert [
            await answer(User="fred"),
            await answer(User="fred", Group="devs", Extra_Scopes="a"),
            await answer(User="eve"),
            await answer(User="fred", Group="ops"),
            await answer(User="fred", Uid="7"),
            await answer(User="fred", Extra_Scopes="b"),
            await answer(User=f"system:serviceaccount:{pods}:other"),
        ] == [
            201,
            201,
            'users "eve"',
            'groups "ops"',
            'uids.authentication.k8s.io "7"',
            'userextras.authentication.k8s.io "b"',
            'serviceaccounts "other"',
        ]
        got = await own.get("/api/v1/pods", headers=fred)
    assert 'User "fred" cannot list resource "pods"' in got.body["message"]


async def test_members_of_a_bound_group_have_its_rights(api: RawApi, cluster: ApiServer, ns: Space):
    await bind(api, group(f"devs-{ns}"), [rule("pods", "list")], namespace=ns)
    headers = {"Impersonate-User": "x", "Impersonate-Group": f"devs-{ns}"}
    async with raw(cluster, cluster.token, **headers) as member:
        await member.eventually(ns.core("pods"), lambda answer: answer.status == 200)
        assert (await member.get(ns.core("secrets"))).status == 403
