"""What the lives of an operator have in common: the kind they install, and how they say what they saw.

A life runs in an environment of its own, without Steersman, and prints one JSON line per step. The lines hold no uids,
times or resourceVersions, so they are the same on every server that behaves the same.
"""

import json
import os
import sys
import time

NAMESPACE = os.environ["CONFORMANCE_NAMESPACE"]
CLIENT = os.environ["CONFORMANCE_CLIENT"]
GROUP = f"{CLIENT}.conformance.example"
VERSION = "v1"
PLURAL = "widgets"
LABELS = {"app": "shop"}

DEFINITION = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": f"{PLURAL}.{GROUP}"},
    "spec": {
        "group": GROUP,
        "scope": "Namespaced",
        "names": {"plural": PLURAL, "singular": "widget", "kind": "Widget"},
        "versions": [
            {
                "name": VERSION,
                "served": True,
                "storage": True,
                "subresources": {"status": {}},
                "schema": {
                    "openAPIV3Schema": {
                        "type": "object",
                        "properties": {
                            "spec": {
                                "type": "object",
                                "required": ["size"],
                                "properties": {
                                    "size": {"type": "integer", "minimum": 1},
                                    "color": {"type": "string", "default": "red"},
                                },
                            },
                            "status": {"type": "object", "properties": {"ready": {"type": "boolean"}}},
                        },
                    }
                },
            }
        ],
    },
}


def widget(name, **spec):
    """A widget as a manifest."""
    return {
        "apiVersion": f"{GROUP}/{VERSION}",
        "kind": "Widget",
        "metadata": {"name": name, "namespace": NAMESPACE, "labels": LABELS},
        "spec": spec,
    }


def lease(holder, transitions):
    """A Lease as a manifest."""
    return {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": f"{CLIENT}-leader", "namespace": NAMESPACE},
        "spec": {"holderIdentity": holder, "leaseDurationSeconds": 15, "leaseTransitions": transitions},
    }


def is_established(definition):
    """Whether a definition, as plain data, says that its kind is served."""
    conditions = (definition.get("status") or {}).get("conditions") or []
    return any(row["type"] == "Established" and row["status"] == "True" for row in conditions)


def until_served(call, refusal):
    """What a call gives once the server has a cache for a new kind; until then the real one answers 429."""
    while True:
        try:
            return call()
        except refusal as error:
            if "storage is (re)initializing" not in str(getattr(error, "body", None) or error):
                raise
        time.sleep(0.1)


def see(step, **facts):
    """Say what a step saw."""
    json.dump({"step": step, **facts}, sys.stdout, sort_keys=True)
    sys.stdout.write("\n")
    sys.stdout.flush()


def see_object(step, live):
    """Say what a step saw of a widget, as plain data."""
    meta = live["metadata"]
    managers = sorted({f"{row['manager']}/{row['operation']}" for row in meta.get("managedFields", ())})
    managers = [row for row in managers if row.endswith("/Apply")]
    see(step, spec=live.get("spec"), status=live.get("status"), generation=meta["generation"], appliers=managers)


def see_refusal(step, code, body):
    """Say how a request was refused; `body` is the Status of the answer, as text or data."""
    status = json.loads(body) if isinstance(body, str | bytes) else body
    causes = sorted({cause.get("field", "") for cause in (status.get("details") or {}).get("causes") or ()})
    see(step, code=code, reason=status["reason"], fields=causes)
