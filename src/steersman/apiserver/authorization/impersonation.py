"""Impersonation: a user acts as another one, with the groups, uid and extra fields that headers name.

Each part of the other identity needs the right to `impersonate` it. The identity that results is the one the request is
authorized for; the rights of the user who sent it no longer count.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import unquote

from steersman.apiserver import status_errors
from steersman.apiserver.authorization.request_attributes import RequestAttributes
from steersman.apiserver.http.authenticator import (
    ALL_AUTHENTICATED,
    ALL_UNAUTHENTICATED,
    ANONYMOUS,
    service_account_groups,
)
from steersman.kube.api.types.authorization import UserInfo

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

_PREFIX, _EXTRA = "impersonate-", "impersonate-extra-"
_ACCOUNT = "system:serviceaccount:"
_AUTHENTICATION = "authentication.k8s.io"


def impersonated_user(headers: Mapping[str, str]) -> UserInfo | None:
    """The user that headers name, exactly as they say; None when they name none."""
    name, uid = "", ""
    groups: list[str] = []
    extra: dict[str, Sequence[str]] = {}
    found = False
    for header, value in headers.items():
        key = header.lower()
        if not key.startswith(_PREFIX):
            continue
        found = True
        if key == "impersonate-user":
            name = name or value
        elif key == "impersonate-uid":
            uid = uid or value
        elif key == "impersonate-group":
            groups.append(value)
        elif key.startswith(_EXTRA):
            field = unquote(key.removeprefix(_EXTRA))
            extra[field] = [*extra.get(field, ()), value]
    if not found:
        return None
    if not name:
        raise status_errors.bad_request("impersonation of a uid, group or extra field needs a user name")
    return UserInfo(username=name, uid=uid, groups=groups, extra=extra or None)


def impersonation_attributes(user: UserInfo) -> Iterator[RequestAttributes]:
    """Every right that is needed to act as `user`."""
    if account := _account(user.username):
        namespace, name = account
        yield RequestAttributes(verb="impersonate", resource="serviceaccounts", namespace=namespace, name=name)
    else:
        yield RequestAttributes(verb="impersonate", resource="users", name=user.username)
    if user.uid:
        yield RequestAttributes(verb="impersonate", group=_AUTHENTICATION, resource="uids", name=user.uid)
    for group in user.groups:
        yield RequestAttributes(verb="impersonate", resource="groups", name=group)
    for key, values in (user.extra or {}).items():
        for value in values:
            yield RequestAttributes(
                verb="impersonate", group=_AUTHENTICATION, resource="userextras", subresource=key, name=value
            )


def with_implied_groups(user: UserInfo) -> UserInfo:
    """`user` with the groups that every user of its sort is in."""
    groups = list(user.groups)
    account = _account(user.username)
    if account and not groups:
        groups = service_account_groups(account[0])
    if user.username == ANONYMOUS.username:
        groups += [ALL_UNAUTHENTICATED] if ALL_UNAUTHENTICATED not in groups else []
    elif not {ALL_AUTHENTICATED, ALL_UNAUTHENTICATED} & set(groups):
        groups.append(ALL_AUTHENTICATED)
    return UserInfo(username=user.username, uid=user.uid, groups=groups, extra=user.extra)


def _account(username: str) -> tuple[str, str] | None:
    """Namespace and name, if it is the user name of a service account."""
    namespace, _, name = username.removeprefix(_ACCOUNT).partition(":")
    valid = username.startswith(_ACCOUNT) and namespace and name and ":" not in name
    return (namespace, name) if valid else None
