"""The chain that one request passes: mutating webhooks in order, some of them twice, then policies, then validating
webhooks.

The chain does no I/O. It knows the answers that webhooks have given so far; where one is missing it raises
`PendingCalls`. An answer belongs to a webhook and to the exact question, so an object that changed in the meantime is
asked about again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from steersman.apiserver import status_errors
from steersman.apiserver.admission.configurations import AdmissionWebhook
from steersman.apiserver.admission.match_conditions import is_excluded
from steersman.apiserver.admission.matching import (
    AdmissionAttributes,
    is_exempt,
    is_policy_kind,
    matched_version,
)
from steersman.apiserver.admission.policy_review import PolicyReview
from steersman.apiserver.admission.review import AdmissionAnswer, denial, patched, question
from steersman.apiserver.cel.expressions import EvaluationError
from steersman.apiserver.patch.managed_fields import decode
from steersman.apiserver.resources.conform import ConformError
from steersman.apiserver.resources.conversion import in_version, to_storage
from steersman.apiserver.resources.defaults import apply_defaults
from steersman.apiserver.status_errors import StatusError
from steersman.apiserver.write.admission import NAMESPACE
from steersman.apiserver.write.decoding import typed_object
from steersman.apiserver.write.verbs import in_namespace
from steersman.errors import FormatError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from steersman.apiserver.admission.match_resources import MatchResources
    from steersman.apiserver.http.requests import Request
    from steersman.apiserver.http.state import Api
    from steersman.apiserver.resources.kinds import ResourceInfo
    from steersman.kube.api.gvk import Kind

JSON = dict[str, Any]
_encode = msgspec.json.Encoder(order="sorted").encode
_AUDIT = "webhook.admission.k8s.io"
_REVIEWS = {"authentication.k8s.io", "authorization.k8s.io"}  # groups of which policies are not asked about reviews
_OPTIONS = ("fieldManager", "fieldValidation")
_OPTIONS_KINDS = {"CREATE": "CreateOptions", "UPDATE": "UpdateOptions"}
_INVALID_MANAGED_FIELDS = (
    ".metadata.managedFields was in an invalid state after admission; this could be caused by an outdated mutating "
    "admission controller; please fix your requests: {}"
)

AdmissionOutcome = AdmissionAnswer | str  # an answer, or why there is none
CallKey = tuple[bool, str, bytes]


class WebhookCall(msgspec.Struct, frozen=True):
    """One question to one webhook."""

    webhook: AdmissionWebhook
    question: JSON  # the request of the review, without its uid

    @property
    def key(self) -> CallKey:
        """What the answer belongs to."""
        return (self.webhook.mutating, self.webhook.id, _encode(self.question))


class PendingCalls(Exception):  # noqa: N818  the request goes on once they are answered
    """The request needs answers that are not there yet; nothing has been written."""

    def __init__(self, calls: list[WebhookCall]) -> None:
        super().__init__([call.webhook.name for call in calls])
        self.calls = calls


class _Round:
    """What one round of mutating webhooks came to."""

    def __init__(self, obj: JSON | None) -> None:
        self.object = obj
        self.changed = False
        self.reinvocable: set[str] = set()  # asked, and to be asked again when something changes the object
        self.again: set[str] = set()  # to be asked again, because a later webhook did


class AdmissionChain:
    """The webhooks and policies that one request passes. `annotations` is what an audit log would get."""

    def __init__(self, api: Api, request: Request, outcomes: Mapping[CallKey, AdmissionOutcome]) -> None:
        self.annotations: dict[str, str] = {}
        self._api = api
        self._request = request
        self._outcomes = outcomes

    def attributes(
        self, operation: str, obj: JSON | None, old: JSON | None, *, dry_run: bool, options: JSON | None = None
    ) -> AdmissionAttributes:
        """What the request is about to do to one object. `options` are those of a delete."""
        route, query = self._request.route, self._request.query
        if options is None:
            named = {name: query.text(name) for name in _OPTIONS if query.text(name)}
            options = {"kind": _OPTIONS_KINDS[operation], "apiVersion": "meta.k8s.io/v1", **named}
            if dry_run:
                options["dryRun"] = ["All"]
        name = route.name or (obj["metadata"].get("name", "") if obj is not None else "")
        return AdmissionAttributes(
            operation=operation,
            info=route.info,
            subresource=route.subresource,
            namespace=name if route.info.kind.qualified == "namespaces" else route.namespace,
            name=name,
            object=obj,
            old=old,
            dry_run=dry_run,
            options=options,
            user=self._api.authenticator.info(self._request.user),
        )

    def mutate(self, attributes: AdmissionAttributes, plugins: Callable[[JSON], JSON] | None = None) -> JSON | None:
        """The object after the mutating webhooks. `plugins` runs the built-in plugins again on what they changed."""
        before = attributes.object
        first = self._round(attributes, number=0)
        obj = first.object
        if first.changed:
            again = first.again
            if plugins is not None and obj is not None and (more := plugins(obj)) != obj:
                obj, again = more, first.reinvocable
            obj = self._round(msgspec.structs.replace(attributes, object=obj), number=1, only=again).object
        return obj if before is None or obj is None else self._with_valid_managers(before, obj)

    def _round(self, attributes: AdmissionAttributes, *, number: int, only: set[str] | None = None) -> _Round:
        """Ask every mutating webhook (`only` those with these ids) once, each about what the one before it left."""
        result = _Round(attributes.object)
        for index, webhook in enumerate(self._webhooks(mutating=True)):
            if only is not None and webhook.id not in only:
                continue
            attributes = msgspec.structs.replace(attributes, object=result.object)
            asked = self._asked(webhook.match, attributes)
            call = self._call(webhook, attributes, asked) if asked is not None else None
            if asked is None or call is None:
                continue
            [outcome] = self._outcomes_of([call])
            where = f"mutation.{_AUDIT}/round_{number}_index_{index}"
            answer = self._allowed(webhook, outcome, failed_open=f"failed-open.{where}")
            patch = answer.patch if answer is not None else None
            obj = self._patched(webhook, attributes, asked, patch) if patch else result.object
            changed = obj != result.object
            if changed:
                result.object, result.changed = obj, True
                result.again |= result.reinvocable
            if webhook.reinvoke:
                result.reinvocable.add(webhook.id)
            mutation = {"configuration": webhook.configuration, "webhook": webhook.name, "mutated": changed}
            self.annotations[where] = msgspec.json.encode(mutation).decode()
        return result

    def review_delete(self, attributes: AdmissionAttributes) -> None:
        """Ask all webhooks about a delete; raises the refusal."""
        self.mutate(attributes)
        self.validate(attributes)

    def prepare_deletes(self, subjects: list[AdmissionAttributes]) -> None:
        """Have all answers about several deletes before the first of them happens."""
        missing: list[WebhookCall] = []
        for attributes in subjects:
            try:
                self.review_delete(attributes)
            except PendingCalls as pending:
                missing += pending.calls
            except StatusError:
                continue  # raised again when it is the turn of this object
        if missing:
            raise PendingCalls(missing)

    def validate(self, attributes: AdmissionAttributes) -> None:
        """Ask all policies and then all validating webhooks at once; raises the first refusal."""
        if self._api.policies:
            self._check_policies(attributes)
        calls = [
            call
            for webhook in self._webhooks(mutating=False)
            if (asked := self._asked(webhook.match, attributes)) is not None
            and (call := self._call(webhook, attributes, asked)) is not None
        ]
        refusals = []
        for index, (call, outcome) in enumerate(zip(calls, self._outcomes_of(calls), strict=True)):
            where = f"failed-open.validating.{_AUDIT}/round_0_index_{index}"
            try:
                self._allowed(call.webhook, outcome, failed_open=where)
            except StatusError as error:
                refusals.append(error)
        if refusals:
            raise refusals[0]

    def _webhooks(self, *, mutating: bool) -> list[AdmissionWebhook]:
        if is_exempt(self._request.route.info.kind):
            return []
        return self._api.webhooks.mutating() if mutating else self._api.webhooks.validating()

    def _check_policies(self, attributes: AdmissionAttributes) -> None:
        """Raises the first denial of a policy; warnings and audit annotations of all policies are kept."""
        kind = attributes.info.kind
        if is_policy_kind(kind) or (attributes.info.virtual and kind.group in _REVIEWS):
            return
        review = PolicyReview(
            self._api,
            attributes,
            matched=lambda match: self._asked(match, attributes),
            question=lambda asked: self._question(attributes, asked),
            namespace=self._namespace(attributes.namespace) if kind.namespaced else None,
        )
        denials = review.denials()
        self.annotations |= review.annotations
        self._request.warnings.extend(review.warnings)
        if denials:
            raise denials[0]

    def _asked(self, match: MatchResources, attributes: AdmissionAttributes) -> ResourceInfo | None:
        versions = self._api.versions(attributes.info).values()
        return matched_version(match, attributes, versions, lambda: self._namespace_labels(attributes.namespace))

    def _namespace(self, name: str) -> JSON:
        record = self._api.store.table(NAMESPACE).records.get(name)
        if record is None:
            raise status_errors.not_found(NAMESPACE, name)
        return record.obj

    def _namespace_labels(self, name: str) -> Mapping[str, str]:
        labels: Mapping[str, str] = self._namespace(name)["metadata"].get("labels") or {}
        return labels

    def _call(
        self, webhook: AdmissionWebhook, attributes: AdmissionAttributes, asked: ResourceInfo
    ) -> WebhookCall | None:
        """The question to a webhook; None when its match conditions exclude the request."""
        call = WebhookCall(webhook, self._question(attributes, asked))
        return None if webhook.conditions and _excluded(call, attributes) else call

    def _question(self, attributes: AdmissionAttributes, asked: ResourceInfo) -> JSON:
        obj = self._converted(attributes, attributes.info, asked, attributes.object)
        old = self._converted(attributes, attributes.info, asked, attributes.old)
        return question(attributes, asked, obj, old)

    def _outcomes_of(self, calls: list[WebhookCall]) -> list[AdmissionOutcome]:
        found = [self._outcomes.get(call.key) for call in calls]
        missing = [call for call, outcome in zip(calls, found, strict=True) if outcome is None]
        if missing:
            raise PendingCalls(missing)
        return [outcome for outcome in found if outcome is not None]

    def _allowed(
        self, webhook: AdmissionWebhook, outcome: AdmissionOutcome, *, failed_open: str
    ) -> AdmissionAnswer | None:
        """The answer that lets the request pass; None when there is none and the failure policy ignores that."""
        if isinstance(outcome, str):
            if not webhook.ignore_failures:
                raise _internal(f'failed calling webhook "{webhook.name}": {outcome}')
            self.annotations[failed_open] = webhook.name
            return None
        for key, value in (outcome.annotations or {}).items():
            self.annotations[f"{webhook.name}/{key}"] = value
        self._request.warnings.extend(outcome.warnings)
        if not outcome.allowed:
            raise denial(webhook, outcome)
        return outcome

    def _patched(
        self, webhook: AdmissionWebhook, attributes: AdmissionAttributes, asked: ResourceInfo, operations: list[JSON]
    ) -> JSON:
        """The object as a patch makes it: typed and defaulted again, in the version of the request."""
        info = attributes.info
        try:
            obj = patched(webhook, self._converted(attributes, info, asked, attributes.object), operations)
            if (own := _own_kind(attributes)) is not None:
                obj = apply_defaults(own, {"metadata": {}, **obj, "apiVersion": own.api_version, "kind": own.kind})
            else:
                obj = typed_object(asked, obj, validation="Ignore", warnings=[])
        except (ConformError, FormatError, ValueError) as error:
            raise _internal(str(error)) from None
        except StatusError as error:
            raise _internal(error.message) from None
        result = self._converted(attributes, asked, info, obj)
        assert result is not None
        return result if own is not None else in_namespace(info, attributes.namespace, result)

    def _converted(
        self, attributes: AdmissionAttributes, source: ResourceInfo, target: ResourceInfo, obj: JSON | None
    ) -> JSON | None:
        if obj is None or source is target or _own_kind(attributes) is not None:
            return obj
        return in_version(target, to_storage(source, obj), reread=True)

    def _with_valid_managers(self, before: JSON, after: JSON) -> JSON:
        """A webhook that spoils `managedFields` loses its change of them."""
        entries = after["metadata"].get("managedFields")
        if entries is before["metadata"].get("managedFields"):
            return after
        try:
            decode(entries, trusted=False)
        except (ValueError, TypeError, AttributeError) as error:
            self._request.warnings.append(_INVALID_MANAGED_FIELDS.format(error))
            metadata = {**after["metadata"], "managedFields": before["metadata"].get("managedFields")}
            return {**after, "metadata": metadata}
        return after


def _excluded(call: WebhookCall, attributes: AdmissionAttributes) -> bool:
    """Whether match conditions exclude the request; one that fails excludes it or refuses it, as the policy says."""
    try:
        return is_excluded(call.webhook.conditions, call.question)
    except EvaluationError as error:
        if call.webhook.ignore_failures:
            return True
        raise status_errors.forbidden(attributes.info.kind, attributes.name, str(error)) from None


def _own_kind(attributes: AdmissionAttributes) -> Kind | None:
    """The kind of the object when it is not the resource's: a Scale, an Eviction, a Binding."""
    return attributes.info.subresource(attributes.subresource).kind if attributes.subresource else None


def _internal(why: str) -> StatusError:
    return StatusError(
        500, f"Internal error occurred: {why}", reason="InternalError", details={"causes": [{"message": why}]}
    )
