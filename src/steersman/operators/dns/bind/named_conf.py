"""named.conf of managed pods, from the instance and its cluster. Pure.

Everything that a user wrote is a checked token or quoted. Control, updates and transfers have a key each. There is no
transfer without a key, no forwarding unless configured, and the version is hidden.
"""

from __future__ import annotations

import re
from ipaddress import ip_address
from typing import TYPE_CHECKING, Final

from steersman.errors import PlanError
from steersman.operators.dns.api.servers import Bind9Config, DnssecConfig, Signing
from steersman.operators.dns.bind.servers import DNS_PORT, RNDC_PORT, ZONES, allowed_transfers
from steersman.operators.dns.bind.statements import WORDS, checked_acl, looping, statement_text
from steersman.operators.dns.dnssec.key_storage import check_policy, keeping_of, key_directory
from steersman.operators.dns.dnssec.keys import ALGORITHMS

if TYPE_CHECKING:
    from steersman.operators.dns.api.servers import Bind9Cluster, Bind9Instance
    from steersman.operators.dns.bind.statements import Statement
    from steersman.operators.dns.dnssec.key_storage import Keeping

CONTROL_KEY: Final = "bindy-operator"
UPDATE_KEY: Final = "bindy-update"
TRANSFER_KEY: Final = "bindy-transfer"
CACHE: Final = "/var/cache/bind"
CONFIG: Final = "/etc/bind/config"
KEY_FILES: Final = ("/etc/bind/keys/keys.conf", "/etc/bind/transfer/transfer.key")
_ACL_NAME: Final = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,62}\Z")


def config_of(instance: Bind9Instance, cluster: Bind9Cluster | None) -> Bind9Config:
    """The effective configuration, field by field: of the instance, else of its cluster."""
    own = instance.spec.config or Bind9Config()
    shared = (cluster.spec.global_ if cluster is not None else None) or Bind9Config()
    merged = {
        field: mine if (mine := getattr(own, field)) is not None else getattr(shared, field)
        for field in Bind9Config.__struct_fields__
    }
    return Bind9Config(**merged)


def _acl(entries: list[str] | None, field: str, names: frozenset[str], default: str) -> tuple[Statement, ...]:
    if entries is None:
        return ((default,),)
    return checked_acl(entries, field, names) or (("none",),)


def user_files(instance: Bind9Instance, cluster: Bind9Cluster | None) -> dict[str, str]:
    """The user's configuration files: file name to name of the ConfigMap."""
    refs = instance.spec.config_map_refs or (cluster.spec.config_map_refs if cluster is not None else None)
    if refs is None:
        return {}
    rows = {
        "named.conf": refs.named_conf,
        "named.conf.options": refs.named_conf_options,
        "named.conf.zones": refs.named_conf_zones,
    }
    return {file: name for file, name in rows.items() if name}


def signing_of(instance: Bind9Instance, cluster: Bind9Cluster | None) -> Signing | None:
    """The signing configuration of the instance or its cluster."""
    dnssec = config_of(instance, cluster).dnssec
    return dnssec.signing if dnssec is not None else None


def keeping_for(instance: Bind9Instance, cluster: Bind9Cluster | None) -> Keeping | None:
    """How a managed instance stores its signing keys; None when it does not sign."""
    if instance.spec.role != "primary" or instance.spec.endpoints:
        return None
    return keeping_of(signing_of(instance, cluster), instance.namespace)


def without_effect(instance: Bind9Instance, cluster: Bind9Cluster | None) -> list[str]:
    """The signing fields that have no effect on an external server, which stores its own keys."""
    signing = signing_of(instance, cluster)
    if signing is None or not instance.spec.endpoints:
        return []
    fields = {
        "keysFrom": signing.keys_from is not None,
        "autoGenerate: false": signing.auto_generate is False,
        "exportToSecret: true": signing.export_to_secret is True,
    }
    return [f"dnssec.signing.{field}" for field, is_set in fields.items() if is_set]


def named_conf(instance: Bind9Instance, cluster: Bind9Cluster | None) -> dict[str, str]:
    """The configuration files of an instance; PlanError names an invalid field."""
    config = config_of(instance, cluster)
    acls = (cluster.spec.acls if cluster is not None else None) or {}
    for name in acls:
        if not _ACL_NAME.match(name) or name in WORDS | {"key"}:
            raise PlanError(
                f'"{name}" is not a valid name for an access list', reason="ConfigurationInvalid", field="spec.acls"
            )
    if loop := looping({name: rows or () for name, rows in acls.items()}):
        raise PlanError("the access list contains itself", reason="ConfigurationInvalid", field=f"spec.acls.{loop}")
    names = frozenset(acls)
    users = user_files(instance, cluster)
    parts: list[Statement] = [
        (f"acl {name}", _acl(list(rows or ()), f"spec.acls.{name}", names, "none"))
        for name, rows in sorted(acls.items())
    ]
    options = _options(config, names, allowed_transfers(instance, cluster))
    if instance.spec.driver == "bindcar" and (keys := key_directory(keeping_for(instance, cluster))):
        options.append(("key-directory", keys))  # the sidecar cannot set it for each zone
    lines = [f'include "{path}";' for path in KEY_FILES]
    lines += [f"acl {name[4:]} {{ {statement_text(rows)} }};" for name, rows in parts]  # type: ignore[arg-type]
    if "named.conf.options" in users:
        lines.append('include "/etc/bind/user/named.conf.options";')
    else:
        lines.append(f"options {{ {statement_text(options)} }};")
    lines.append(f'controls {{ inet * port {RNDC_PORT} allow {{ any; }} keys {{ "{CONTROL_KEY}"; }}; }};')
    lines.append("statistics-channels { inet 127.0.0.1 port 8053 allow { 127.0.0.1; }; };")
    lines.append(
        "logging { channel stderr { stderr; severity info; print-time yes; }; category default { stderr; }; };"
    )
    signing = config.dnssec.signing if config.dnssec is not None else None
    if signing is not None and signing.enabled:
        lines.append(_policy(signing))
    if "named.conf.zones" in users:
        lines.append('include "/etc/bind/user/named.conf.zones";')
    if "named.conf" in users:
        lines = ['include "/etc/bind/user/named.conf";']
    return {"named.conf": "\n".join(lines) + "\n"}


def _options(config: Bind9Config, names: frozenset[str], transfers: list[str]) -> list[Statement]:
    yes_no = {True: "yes", False: "no"}
    dnssec = config.dnssec or DnssecConfig()
    allowed = _acl(transfers, "spec.config.allowTransfer", names, "none")
    options: list[Statement] = [
        ("directory", ZONES),
        ("pid-file", "none"),
        ("lock-file", "none"),
        ("session-keyfile", f"{CACHE}/session.key"),
        ("listen-on", "port", str(DNS_PORT), _acl(config.listen_on, "spec.config.listenOn", names, "any")),
        ("listen-on-v6", "port", str(DNS_PORT), _acl(config.listen_on_v6, "spec.config.listenOnV6", names, "any")),
        ("allow-new-zones", "yes"),
        ("recursion", yes_no[bool(config.recursion)]),
        ("allow-query", _acl(config.allow_query, "spec.config.allowQuery", names, "any")),
        ("allow-transfer", allowed),
        ("notify", "explicit"),
        ("notify-delay", "1"),
        ("minimal-responses", "yes"),
        ("version", "none"),
        ("transfers-in", "100"),
        ("transfers-per-ns", "50"),
        ("serial-query-rate", "1000"),
        ("startup-notify-rate", "1000"),
        ("dnssec-validation", "auto" if dnssec.validation else "no"),
    ]
    if config.forwarders:
        try:
            addresses: tuple[Statement, ...] = tuple((str(ip_address(text)),) for text in config.forwarders)
        except ValueError as error:
            raise PlanError(str(error), reason="ConfigurationInvalid", field="spec.config.forwarders") from None
        options.append(("forwarders", addresses))
    return options


def _policy(signing: Signing) -> str:
    """The dnssec-policy statement; named requires the same algorithm for both keys."""
    name = signing.policy
    algorithm = ALGORITHMS[check_policy(signing)].lower()
    keys = (
        f"keys {{ ksk lifetime {signing.ksk_lifetime} algorithm {algorithm}; "
        f"zsk lifetime {signing.zsk_lifetime} algorithm {algorithm}; }};"
    )
    nsec3 = ""
    if signing.nsec3:
        salt = len(signing.nsec3_salt) // 2 if signing.nsec3_salt not in ("", "-") else 0
        nsec3 = f" nsec3param iterations {signing.nsec3_iterations} optout no salt-length {salt};"
    return f'dnssec-policy "{name}" {{ {keys}{nsec3} }};'
