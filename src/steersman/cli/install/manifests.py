"""`steersman manifests`: a whole installation without Helm.

The same objects that the chart makes with the same choices; a test compares them. Rights and settings are exact: rules
follow from the settings given here, not only from which operators run.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import click
import msgspec

from steersman.cli.install.rbac import operators_option
from steersman.cli.kube_options import check_namespaces
from steersman.operators import Operator

__all__ = ["InstallOptions", "command"]

USER: Final = 65532
PROBE_PORT: Final = 8081  # where kubelets probe without TLS, as in controller-runtime
LABELS: Final = {"app.kubernetes.io/name": "steersman", "app.kubernetes.io/instance": "steersman"}


class InstallOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What a person chooses."""

    operators: Sequence[tuple[Operator, Any]]  # each with its configuration
    settings: dict[str, Any]  # of the configuration file: sections of operators and whatever else it holds
    name: str = "steersman"
    namespace: str = "steersman"
    namespaces: Sequence[str] = ()
    image: str = "steersman"
    replicas: int = 2
    port: int = 8080
    page: str = "token"
    metrics: str = "open"
    tls_secret: str = ""  # the Secret with tls.crt, tls.key and ca.crt; empty: no TLS

    def manifests(self) -> list[dict[str, Any]]:
        """Everything, in an order in which it can be applied."""
        from steersman.cli.install.rbac import with_reviews
        from steersman.crd import crd_manifest
        from steersman.operators import permissions_of

        rights = with_reviews(permissions_of(self.operators), self.page, self.metrics)
        made: list[dict[str, Any]] = [
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": self.namespace}},
            *(crd_manifest(kind) for operator, _ in self.operators for kind in operator.kinds),
            *rights.manifests(self.name, self.namespace, namespaces=self.namespaces, lease=self.name),
            self._config_map(),
            self._deployment(),
            self._service(),
        ]
        if self.replicas > 1:
            made.append(self._disruption_budget())
        return made

    def settings_file(self) -> str:
        """The configuration file that the process reads."""
        import yaml

        fixed: dict[str, Any] = {
            "operators": [operator.name for operator, _ in self.operators],
            "leaderElect": True,
            "lease": f"{self.namespace}/{self.name}",
            "listen": f"0.0.0.0:{self.port}",
        }
        if self.namespaces:
            fixed["namespaces"] = list(self.namespaces)
        return yaml.safe_dump({**self.settings, **fixed})

    def _meta(self) -> dict[str, Any]:
        return {"name": self.name, "namespace": self.namespace, "labels": dict(LABELS)}

    def _config_map(self) -> dict[str, Any]:
        data = {"steersman.yaml": self.settings_file()}
        return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": self._meta(), "data": data}

    def _service(self) -> dict[str, Any]:
        ports = [{"name": "http", "port": self.port, "targetPort": "http"}]
        spec = {"selector": dict(LABELS), "ports": ports}
        return {"apiVersion": "v1", "kind": "Service", "metadata": self._meta(), "spec": spec}

    def _disruption_budget(self) -> dict[str, Any]:
        spec = {"maxUnavailable": 1, "selector": {"matchLabels": dict(LABELS)}}
        return {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": self._meta(), "spec": spec}

    def _deployment(self) -> dict[str, Any]:
        checksum = hashlib.sha256(self.settings_file().encode()).hexdigest()
        spread = {
            "maxSkew": 1,
            "topologyKey": "kubernetes.io/hostname",
            "whenUnsatisfiable": "ScheduleAnyway",
            "labelSelector": {"matchLabels": dict(LABELS)},
        }
        pod = {
            "serviceAccountName": self.name,
            "terminationGracePeriodSeconds": 45,
            "securityContext": {
                "runAsNonRoot": True,
                "runAsUser": USER,
                "runAsGroup": USER,
                "seccompProfile": {"type": "RuntimeDefault"},
            },
            "containers": [self._container()],
            "volumes": [
                {"name": "settings", "configMap": {"name": self.name}},
                *([{"name": "tls", "secret": {"secretName": self.tls_secret}}] if self.tls_secret else []),
            ],
            "topologySpreadConstraints": [spread],
        }
        template = {"metadata": {"labels": dict(LABELS), "annotations": {"checksum/settings": checksum}}, "spec": pod}
        return {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": self._meta(),
            "spec": {
                "replicas": self.replicas,
                "selector": {"matchLabels": dict(LABELS)},
                "strategy": {"rollingUpdate": {"maxUnavailable": 0, "maxSurge": 1}},
                "template": template,
            },
        }

    def _container(self) -> dict[str, Any]:
        arguments = ["run", "--config", "/etc/steersman/steersman.yaml", "--log-level", "info", "--log-format", "json"]
        arguments += ["--page", self.page, "--metrics", self.metrics]
        ports = [{"name": "http", "containerPort": self.port}]
        mounts = [{"name": "settings", "mountPath": "/etc/steersman", "readOnly": True}]
        if self.tls_secret:
            arguments += ["--tls-certs", "/etc/steersman-tls", "--probe-listen", f"0.0.0.0:{PROBE_PORT}"]
            ports.append({"name": "probes", "containerPort": PROBE_PORT})
            mounts.append({"name": "tls", "mountPath": "/etc/steersman-tls", "readOnly": True})
        live = {"httpGet": {"path": "/livez", "port": ports[-1]["name"]}}
        ready = {"httpGet": {"path": "/readyz", "port": ports[-1]["name"]}}
        return {
            "name": "steersman",
            "image": self.image,
            "imagePullPolicy": "IfNotPresent",
            "args": arguments,
            "ports": ports,
            "startupProbe": {**live, "periodSeconds": 2, "failureThreshold": 60},
            "livenessProbe": {**live, "periodSeconds": 10, "timeoutSeconds": 5, "failureThreshold": 6},
            "readinessProbe": {**ready, "periodSeconds": 5, "timeoutSeconds": 5},
            "resources": {"requests": {"cpu": "20m", "memory": "96Mi"}, "limits": {"memory": "256Mi"}},
            "securityContext": {
                "allowPrivilegeEscalation": False,
                "readOnlyRootFilesystem": True,
                "capabilities": {"drop": ["ALL"]},
            },
            "volumeMounts": mounts,
        }


@click.command("manifests")
@operators_option
@click.option("--config", type=click.Path(path_type=Path), envvar="STEERSMAN_CONFIG", help="Settings to install with.")
@click.option(
    "-n", "--namespace", callback=check_namespaces, default="steersman", show_default=True, help="Where it runs."
)
@click.option(
    "--namespaces", callback=check_namespaces, default="", help="Work in these namespaces only, separated by commas."
)
@click.option("--image", help="The image to run.  [default: steersman with this version as its tag]")
@click.option("--replicas", default=2, show_default=True, type=click.IntRange(min=0), help="One leads, others wait.")
@click.option(
    "--page",
    default="token",
    show_default=True,
    type=click.Choice(["off", "local", "open", "token"]),
    help="Who may read the page.",
)
@click.option(
    "--metrics",
    default="open",
    show_default=True,
    type=click.Choice(["open", "token"]),
    help="Who may read /metrics.",
)
@click.option("--tls-secret", default="", metavar="NAME", help="Serve over TLS with the certificate of this Secret.")
@click.option(
    "-o", "--output", type=click.Choice(["yaml", "json"]), default="yaml", show_default=True, help="How to print."
)
def command(
    *,
    operators: str,
    config: Path | None,
    namespace: str,
    namespaces: str,
    image: str | None,
    replicas: int,
    page: str,
    metrics: str,
    tls_secret: str,
    output: str,
) -> None:
    """Print everything that an installation needs: definitions, rights, settings, Deployment, Service.

    \b
    Examples:
      steersman manifests --image example.org/steersman:1.0 | kubectl apply -f -
      steersman manifests --config steersman.yaml --namespaces shop,stock
    """
    from importlib.metadata import version

    from steersman.cli.install.rbac import configured_operators, names_in, print_manifests
    from steersman.kube.config.yaml_document import YamlDocument

    chosen = configured_operators(operators, config)
    written = (YamlDocument.read(config).value or {}) if config is not None else {}
    installation = InstallOptions(
        operators=chosen,
        settings=written,
        namespace=namespace,
        namespaces=names_in(namespaces) or written.get("namespaces", []),
        image=image or f"steersman:{version('steersman')}",
        replicas=replicas,
        page=page,
        metrics=metrics,
        tls_secret=tls_secret,
    )
    print_manifests(installation.manifests(), output)
