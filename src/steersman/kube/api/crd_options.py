"""What a CustomResourceDefinition has besides the fields of its kind. Pure data."""

from __future__ import annotations

import msgspec

__all__ = ["CRDOptions", "PrinterColumn", "ScaleSubresource"]


class PrinterColumn(msgspec.Struct, frozen=True, kw_only=True):
    """One column of `kubectl get`."""

    name: str
    json_path: str = ""  # from the root of the object; empty on a field's annotation, where the place says it
    type: str = ""  # integer, number, string, boolean or date; empty: derived from the field
    description: str = ""
    priority: int = 0  # above 0: only with -o wide


class ScaleSubresource(msgspec.Struct, frozen=True, kw_only=True):
    """Where the scale subresource finds its numbers."""

    spec_replicas: str = ".spec.replicas"
    status_replicas: str = ".status.replicas"
    selector: str | None = None  # a string field with a serialised label selector; autoscalers need it


class CRDOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The options of a custom kind, and of one version of it."""

    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()  # `kubectl get CATEGORY` shows all kinds in it
    columns: tuple[PrinterColumn, ...] = ()  # besides those that fields ask for
    scale: ScaleSubresource | None = None
    served: bool = True  # False: the server still reads stored objects of this version, and offers it to no client
    storage: bool = False  # True: objects are stored in this version; else in the hub, or the last version
    deprecated: bool | str = False  # clients get a warning: this text, or one that the server makes
