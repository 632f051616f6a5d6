"""named.conf of the servers that the operator makes. Pure; everything a person wrote is a checked token or quoted.

Control, update and transfer have a key each. Nothing is transferred without one, nothing is forwarded unless asked for,
and the version is nobody's business.
"""

from __future__ import annotations

import re
from ipaddress import ip_address
from typing import TYPE_CHECKING, Final

from steersman.errors import FormatError, PlanError
from steersman.operators.dns.acls import WORDS, checked_acl, looping
from steersman.operators.dns.catalogconf import IN_OPTIONS, IN_ZONES
from steersman.operators.dns.fleet import DNS_PORT, RNDC_PORT, ZONES, allowed_transfers, catalog_of
from steersman.operators.dns.names import name_of
from steersman.operators.dns.serverkinds import Bind9Config, DnssecConfig, Signing
from steersman.operators.dns.signing import ALGORITHMS
from steersman.operators.dns.signingpod import check_policy, keeping_of, key_directory
from steersman.operators.dns.zonetext import statement_text

if TYPE_CHECKING:
    from steersman.operators.dns.serverkinds import Bind9Cluster, Bind9Instance
    from steersman.operators.dns.signingpod import Keeping
    from steersman.operators.dns.zonetext import Statement

__all__ = [
    "CONTROL_KEY",
    "KEY_FILES",
    "TRANSFER_KEY",
    "UPDATE_KEY",
    "config_of",
    "keeping_for",
    "named_conf",
    "signing_of",
    "user_files",
    "without_effect",
]

CONTROL_KEY: Final = "bindy-operator"
UPDATE_KEY: Final = "bindy-update"
TRANSFER_KEY: Final = "bindy-transfer"
CACHE: Final = "/var/cache/bind"
CONFIG: Final = "/etc/bind/config"
KEY_FILES: Final = ("/etc/bind/keys/keys.conf", "/etc/bind/transfer/transfer.key")
_ACL_NAME: Final = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,62}\Z")


def config_of(instance: Bind9Instance, cluster: Bind9Cluster | None) -> Bind9Config:
    """The configuration in effect, field by field: the instance's, else its cluster's."""
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
    """ConfigMaps whose files are included: by key, the name of the ConfigMap."""
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
    """What is said about signing, by the instance or its cluster."""
    dnssec = config_of(instance, cluster).dnssec
    return dnssec.signing if dnssec is not None else None


def keeping_for(instance: Bind9Instance, cluster: Bind9Cluster | None) -> Keeping | None:
    """How an instance that we make keeps its signing keys; None when it signs nothing."""
    if instance.spec.role != "primary" or instance.spec.endpoints:
        return None
    return keeping_of(signing_of(instance, cluster), instance.namespace)


def without_effect(instance: Bind9Instance, cluster: Bind9Cluster | None) -> list[str]:
    """What is asked for and not done, by field: a server that exists already has its keys where it has them."""
    signing = signing_of(instance, cluster)
    if signing is None or not instance.spec.endpoints:
        return []
    asked = {
        "keysFrom": signing.keys_from is not None,
        "autoGenerate: false": signing.auto_generate is False,
        "exportToSecret: true": signing.export_to_secret is True,
    }
    return [f"dnssec.signing.{field}" for field, said in asked.items() if said]


def named_conf(instance: Bind9Instance, cluster: Bind9Cluster | None) -> dict[str, str]:
    """The files of an instance's configuration."""
    config = config_of(instance, cluster)
    acls = (cluster.spec.acls if cluster is not None else None) or {}
    for name in acls:
        if not _ACL_NAME.match(name) or name in WORDS | {"key"}:
            raise PlanError(f'"{name}" is no name for a list', reason="ConfigurationInvalid", field="spec.acls")
    if loop := looping({name: rows or () for name, rows in acls.items()}):
        raise PlanError("the list is in itself", reason="ConfigurationInvalid", field=f"spec.acls.{loop}")
    names = frozenset(acls)
    users = user_files(instance, cluster)
    catalog = _catalog(instance, cluster, users)
    parts: list[Statement] = [
        (f"acl {name}", _acl(list(rows or ()), f"spec.acls.{name}", names, "none"))
        for name, rows in sorted(acls.items())
    ]
    options = _options(config, names, allowed_transfers(instance, cluster), catalog)
    if instance.spec.driver == "bindcar" and (keys := key_directory(keeping_for(instance, cluster))):
        options.append(("key-directory", keys))  # a sidecar cannot be told for each zone
    lines = [f'include "{path}";' for path in KEY_FILES]
    lines += [f"acl {name[4:]} {{ {statement_text(rows)} }};" for name, rows in parts]  # type: ignore[arg-type]
    if "named.conf.options" in users:
        lines.append('include "/etc/bind/user/named.conf.options";')
    else:
        included = f' include "{CONFIG}/{IN_OPTIONS}";' if catalog else ""
        lines.append(f"options {{ {statement_text(options)}{included} }};")
    lines.append(f'controls {{ inet * port {RNDC_PORT} allow {{ any; }} keys {{ "{CONTROL_KEY}"; }}; }};')
    lines.append("statistics-channels { inet 127.0.0.1 port 8053 allow { 127.0.0.1; }; };")
    lines.append(
        "logging { channel stderr { stderr; severity info; print-time yes; }; category default { stderr; }; };"
    )
    signing = config.dnssec.signing if config.dnssec is not None else None
    if signing is not None and signing.enabled:
        lines.append(_policy(signing))
    if catalog:
        lines.append(f'include "{CONFIG}/{IN_ZONES}";')
    if "named.conf.zones" in users:
        lines.append('include "/etc/bind/user/named.conf.zones";')
    if "named.conf" in users:
        lines = ['include "/etc/bind/user/named.conf";']
    return {"named.conf": "\n".join(lines) + "\n"}


def _catalog(instance: Bind9Instance, cluster: Bind9Cluster | None, users: dict[str, str]) -> str:
    """The catalog zone of a secondary, if it has one; PlanError when there is no way to give it one."""
    catalog = catalog_of(instance, cluster)
    if not catalog:
        return ""
    try:
        name_of(catalog)
    except FormatError as error:
        raise PlanError(str(error), reason="ConfigurationInvalid", field="spec.config.catalogZone") from None
    if instance.spec.driver == "bindcar":
        message = (
            "a secondary with a sidecar is told its zones one by one: leave out the catalog, or the driver bindcar"
        )
        raise PlanError(message, reason="ConfigurationInvalid", field="spec.config.catalogZone")
    if users.keys() & {"named.conf", "named.conf.options"}:
        message = "a catalog needs options that are made here: leave out namedConf and namedConfOptions, or the catalog"
        raise PlanError(message, reason="ConfigurationInvalid", field="spec.configMapRefs")
    return catalog


def _options(config: Bind9Config, names: frozenset[str], transfers: list[str], catalog: str) -> list[Statement]:
    yes_no = {True: "yes", False: "no"}
    dnssec = config.dnssec or DnssecConfig()
    allowed = _acl(transfers, "spec.config.allowTransfer", names, "none")
    if catalog:  # zones that come from it have no other place for this
        allowed = (*(entry for entry in allowed if entry != ("none",)), ("key", TRANSFER_KEY))
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
    if catalog:
        options.append(("allow-notify", (("key", TRANSFER_KEY),)))
    if config.forwarders:
        try:
            addresses: tuple[Statement, ...] = tuple((str(ip_address(text)),) for text in config.forwarders)
        except ValueError as error:
            raise PlanError(str(error), reason="ConfigurationInvalid", field="spec.config.forwarders") from None
        options.append(("forwarders", addresses))
    return options


def _policy(signing: Signing) -> str:
    """A signing policy; both keys have one algorithm, because named wants it so."""
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
