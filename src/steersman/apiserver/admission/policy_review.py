"""What all policies of a server make of one request: which match, with which parameters, and what follows.

A denial becomes an error, a warning or an audit annotation, as the binding says. Errors of configuration (a parameter
kind that does not exist, parameters that are missing) deny too, unless the failure policy of the policy is `Ignore`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from steersman.apiserver import status_errors
from steersman.apiserver.admission.policies import PolicyDecision
from steersman.apiserver.admission.request_environment import namespace_value
from steersman.apiserver.resources.conversion import in_version

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from steersman.apiserver.admission.match_resources import MatchResources
    from steersman.apiserver.admission.matching import AdmissionAttributes
    from steersman.apiserver.admission.policies import PolicyBinding, ValidatingPolicy
    from steersman.apiserver.http.state import Api
    from steersman.apiserver.resources.kinds import ResourceInfo
    from steersman.apiserver.status_errors import StatusError

JSON = dict[str, Any]
_CODES: Final = {"Forbidden": 403, "RequestEntityTooLarge": 413}
_AUDIT: Final = "validation.policy.admission.k8s.io/validation_failure"


class ConfigurationError(ValueError):
    """A policy or binding that cannot be evaluated for a request."""


class PolicyReview:
    """The review of one request by all policies. `warnings` and `annotations` get what they say."""

    def __init__(
        self,
        api: Api,
        attributes: AdmissionAttributes,
        *,
        matched: Callable[[MatchResources], ResourceInfo | None],  # the version in which the request matches
        question: Callable[[ResourceInfo], JSON],  # the request of a review in that version
        namespace: JSON | None,  # of the object
    ) -> None:
        self.warnings: list[str] = []
        self.annotations: dict[str, str] = {}
        self._api = api
        self._attributes = attributes
        self._matched = matched
        self._question = question
        self._namespace = namespace_value(namespace)

    def denials(self) -> list[StatusError]:
        """Every denial that is an error."""
        return [
            denial
            for policy, bindings in self._api.policies.bound()
            if (asked := self._matched(policy.match)) is not None
            for denial in self._of_policy(policy, bindings, asked)
        ]

    def _of_policy(
        self, policy: ValidatingPolicy, bindings: list[PolicyBinding], asked: ResourceInfo
    ) -> Iterator[StatusError]:
        try:
            kind = self._param_kind(policy)
        except ConfigurationError as error:
            if not policy.ignores_failures:
                decision = PolicyDecision(f"failed to configure policy: {error}")
                yield self._denied(f"ValidatingAdmissionPolicy '{policy.name}'", decision)
            return
        found: dict[str, dict[str, None]] = {}  # distinct values of audit annotations, in order
        for binding in bindings:
            if binding.match is not None and self._matched(binding.match) is None:
                continue
            try:
                params = self._params(kind, binding)
            except ConfigurationError as error:
                if not policy.ignores_failures:
                    yield self._denied(_names(policy, binding), PolicyDecision(f"failed to configure binding: {error}"))
                continue
            for param in params:
                decisions, annotations = policy.evaluate(self._question(asked), self._namespace, param)
                for key, value in annotations.items():
                    found.setdefault(f"{policy.name}/{key}", {})[value] = None
                for decision in decisions:
                    yield from self._acted(policy, binding, decision)
        self.annotations |= {key: ", ".join(values) for key, values in found.items()}

    def _acted(
        self, policy: ValidatingPolicy, binding: PolicyBinding, decision: PolicyDecision
    ) -> Iterator[StatusError]:
        if decision.always:
            yield self._denied(_names(policy, binding), decision)
            return
        for action in binding.actions:
            if action == "Deny":
                yield self._denied(_names(policy, binding), decision)
            elif action == "Warn":
                self.warnings.append(f"Validation failed for {_names(policy, binding)}: {decision.message}")
            else:
                failure = {
                    "message": decision.message,
                    "policy": policy.name,
                    "binding": binding.name,
                    "expressionIndex": decision.index,
                    "validationActions": binding.actions,
                }
                self.annotations[_AUDIT] = msgspec.json.encode([failure]).decode()

    def _denied(self, by: str, decision: PolicyDecision) -> StatusError:
        attributes = self._attributes
        message = f"{by} denied request: {decision.message}"
        error = status_errors.forbidden(attributes.info.kind, attributes.name, message, [{"message": message}])
        error.code, error.reason = _CODES.get(decision.reason, 422), decision.reason
        return error

    def _param_kind(self, policy: ValidatingPolicy) -> ResourceInfo | None:
        if policy.param_kind is None:
            return None
        api_version, kind = policy.param_kind["apiVersion"], policy.param_kind["kind"]
        group, _, version = api_version.rpartition("/")
        info = self._api.registry.by_kind(group, version, kind)
        if info is None:
            raise ConfigurationError(f"failed to find resource referenced by paramKind: '{api_version}, Kind={kind}'")
        return info

    def _params(self, kind: ResourceInfo | None, binding: PolicyBinding) -> list[JSON | None]:
        """The parameters with which a policy is evaluated, once with each; none of them: not at all."""
        ref = binding.params
        if kind is None or ref is None:
            return [None]
        namespace = ""
        if kind.kind.namespaced:
            namespace = ref.namespace or self._attributes.namespace
            if not namespace:
                raise ConfigurationError(
                    "cannot use namespaced paramRef in policy binding that matches cluster-scoped resources"
                )
        elif ref.namespace:
            raise ConfigurationError("paramRef.namespace must not be provided for a cluster-scoped `paramKind`")
        table = self._api.table(kind)
        if ref.selector is None:
            record = table.records.get(f"{namespace}/{ref.name}" if namespace else ref.name)
            records = [] if record is None else [record]
        else:
            selector = ref.selector
            records = [
                record
                for record in table.scan(namespace)
                if selector.matches(record.obj["metadata"].get("labels") or {})
            ]
        if not records and ref.required:
            raise ConfigurationError("no params found for policy binding with `Deny` parameterNotFoundAction")
        return [in_version(kind, record.obj) for record in records]


def _names(policy: ValidatingPolicy, binding: PolicyBinding) -> str:
    return f"ValidatingAdmissionPolicy '{policy.name}' with binding '{binding.name}'"
