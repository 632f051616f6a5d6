"""The settings of `steersman run`, from four places: flags > environment (`STEERSMAN_…`) > `--config` file > defaults.

One typed schema: it validates with the line of the file, and prints its own reference. Sections of operators bear the
operator's name and are typed by the operator, so a section of one that does not run is still checked.
"""

from __future__ import annotations

import re
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, Literal

import msgspec

from steersman.errors import ConfigError
from steersman.operators import OPERATORS, load_operator

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from steersman.kube.config.yaml_document import YamlDocument

_STEP: Final = re.compile(r"([^.\[\]]+)|\[(\d+)\]")


class Sections(dict[str, Any]):
    """The typed sections, by operator; one that the file lacks is made on first use, and its operator loaded then."""

    def __missing__(self, name: str) -> Any:
        shape = load_operator(name).config
        self[name] = made = None if shape is None else shape()
        return made


class RunSettings(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The configuration file, without the operators' sections."""

    operators: list[str] = []  # which to run
    listen: str | None = None  # ADDRESS:PORT of health, metrics and the page; None: by where we run
    page: Literal["local", "token", "open", "off"] = "local"  # who sees the page
    metrics: Literal["open", "token"] = "open"  # who reads /metrics
    tls_certs: str | None = None  # a folder with tls.crt and tls.key, to serve health, metrics and the page over TLS
    probe_listen: str | None = None  # ADDRESS:PORT for probes alone, without TLS; None: only at `listen`
    profiling: bool = False  # callers on this machine may take profiles at /debug/profile and /debug/heap
    leader_elect: bool = False  # one replica works, the others wait with warm caches
    shard: bool = False  # share the namespaces with the other processes of the same lease, instead of electing one
    lease: str | None = None  # NAMESPACE/NAME
    webhooks: bool | None = None  # serve those of Python files; None: when another setting of them is made
    webhook_listen: str | None = None  # ADDRESS:PORT; None: port 9443, by where we run
    webhook_host: str | None = None  # what the API server calls; None: NAME.NAMESPACE.svc in a cluster, else 127.0.0.1
    webhook_name: str | None = None  # of the webhook configurations, and of the Secret; None: that of the first file
    webhook_certs: str | None = None  # a folder with tls.crt and tls.key; None: they are made, and kept in a Secret
    workers: int | None = None  # keys a controller works on at once; None: the controller's own number
    namespaces: list[str] | None = None  # only these; None: all
    dry_run: bool = False  # change nothing
    shadow: bool = False  # write nothing, and compare with another controller that acts
    sections: dict[str, Any] = {}  # operator -> its configuration, typed


def load_settings(path: Path | None) -> RunSettings:
    """What the file says; defaults without one. Raises ConfigError with line and field."""
    if path is None:
        return RunSettings(sections=Sections())
    from steersman.kube.api.validation import dns_label_errors
    from steersman.kube.config.yaml_document import YamlDocument, did_you_mean

    try:
        document = YamlDocument.read(path)
    except FileNotFoundError:
        raise ConfigError("no such file", where=str(path)) from None
    if not isinstance(document.value, dict | None):
        raise document.error("must be a mapping of settings (try operators: [reload])", [])
    own = {field.encode_name for field in msgspec.structs.fields(RunSettings)} - {"sections"}
    for key in document.value or {}:
        if key not in own and key not in OPERATORS:
            raise document.error(f"is not a setting{did_you_mean(key, {*own, *OPERATORS})}", [key])
    # a file of comments only, or a section whose settings are all commented out, has the defaults
    document.value = {key: part for key, part in (document.value or {}).items() if part is not None}
    sections = Sections()
    for name in OPERATORS:
        if name not in document.value:
            continue
        operator = load_operator(name)
        if operator.config is None:
            continue
        whole = msgspec.defstruct("_File", [(name, operator.config, msgspec.field(default_factory=operator.config))])
        sections[name] = getattr(document.convert(whole), name)
        with _located(document):
            operator.check(sections[name])
    settings = msgspec.structs.replace(document.convert(RunSettings), sections=sections)
    with _located(document):
        for name in settings.operators:
            load_operator(name)
        for place, name in enumerate(settings.namespaces or ()):
            if dns_label_errors(name):
                raise ConfigError(f'"{name}" is not a namespace (try shop)', field=f"namespaces[{place}]")
    return settings


@contextmanager
def _located(document: YamlDocument) -> Iterator[None]:
    """Give an error about a setting of this file its line."""
    try:
        yield
    except ConfigError as error:
        if error.where is not None or error.field is None:
            raise
        steps = [int(index) if index else name for name, index in _STEP.findall(error.field)]
        raise document.error(error.message, steps) from None
