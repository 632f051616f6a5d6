"""`steersman manifests`: a whole installation without Helm.

The same objects that the chart makes with the same choices; a test compares them. Rights and settings are exact: rules
follow from the settings given here, not only from which operators run.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final

import click
import msgspec

from steersman.cli.install.rbac import operators_option
from steersman.cli.kube_options import check_namespaces
from steersman.cli.output import manifest_output_option
from steersman.operators import Operator

if TYPE_CHECKING:
    from steersman.runtime.rbac import Permissions

USER: Final = 65532
PROBE_PORT: Final = 8081  # where kubelets probe without TLS, as in controller-runtime
TLS_FOLDER: Final = "/etc/steersman-tls"


class DeploymentManifests(msgspec.Struct, frozen=True, kw_only=True):
    """A Deployment and what it needs. Subclasses say what runs in it."""

    name: str = "steersman"
    namespace: str = "steersman"
    namespaces: Sequence[str] = ()
    image: str = "steersman"
    replicas: int = 2
    port: int = 8080
    page: str = "token"
    metrics: str = "open"
    tls_secret: str = ""  # the Secret with tls.crt, tls.key and ca.crt; empty: no TLS

    mounted: ClassVar[str] = "/etc/steersman"  # where the files of the ConfigMap are
    volume: ClassVar[str] = "settings"

    def definitions(self) -> list[dict[str, Any]]:
        """The CustomResourceDefinitions."""
        raise NotImplementedError

    def rights(self) -> Permissions:
        """What it needs besides the page and the Lease."""
        raise NotImplementedError

    def arguments(self) -> list[str]:
        """Those of `steersman`."""
        raise NotImplementedError

    def files(self) -> dict[str, str]:
        """The files of the ConfigMap; without one there is no ConfigMap."""
        return {}

    def webhook_port(self) -> int | None:
        """Where webhooks are served."""
        return None

    def manifests(self) -> list[dict[str, Any]]:
        """Everything, in an order in which it can be applied."""
        from steersman.cli.install.rbac import with_reviews

        rights = with_reviews(self.rights(), self.page, self.metrics)
        space = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": self.namespace}}
        made: list[dict[str, Any]] = [
            *([space] if self.namespace != "default" else ()),
            *self.definitions(),
            *rights.manifests(self.name, self.namespace, namespaces=self.namespaces, lease=self.name),
        ]
        if self.files():
            made.append({"apiVersion": "v1", "kind": "ConfigMap", "metadata": self._meta(), "data": self.files()})
        made += [self._deployment(), self._service()]
        if self.replicas > 1:
            made.append(self._disruption_budget())
        return made

    @property
    def labels(self) -> dict[str, str]:
        """Of everything that has labels."""
        return {"app.kubernetes.io/name": self.name, "app.kubernetes.io/instance": self.name}

    def _meta(self) -> dict[str, Any]:
        return {"name": self.name, "namespace": self.namespace, "labels": self.labels}

    def _service(self) -> dict[str, Any]:
        ports = [{"name": "http", "port": self.port, "targetPort": "http"}]
        if self.webhook_port():
            ports.append({"name": "webhooks", "port": 443, "targetPort": "webhooks"})
        spec = {"selector": self.labels, "ports": ports}
        return {"apiVersion": "v1", "kind": "Service", "metadata": self._meta(), "spec": spec}

    def _disruption_budget(self) -> dict[str, Any]:
        spec = {"maxUnavailable": 1, "selector": {"matchLabels": self.labels}}
        return {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": self._meta(), "spec": spec}

    def _deployment(self) -> dict[str, Any]:
        spread = {
            "maxSkew": 1,
            "topologyKey": "kubernetes.io/hostname",
            "whenUnsatisfiable": "ScheduleAnyway",
            "labelSelector": {"matchLabels": self.labels},
        }
        pod: dict[str, Any] = {
            "serviceAccountName": self.name,
            "terminationGracePeriodSeconds": 45,
            "securityContext": {
                "runAsNonRoot": True,
                "runAsUser": USER,
                "runAsGroup": USER,
                "seccompProfile": {"type": "RuntimeDefault"},
            },
            "containers": [self._container()],
        }
        metadata: dict[str, Any] = {"labels": self.labels}
        volumes: list[dict[str, Any]] = []
        if files := self.files():
            checksum = hashlib.sha256("".join(files.values()).encode()).hexdigest()
            metadata["annotations"] = {f"checksum/{self.volume}": checksum}
            volumes.append({"name": self.volume, "configMap": {"name": self.name}})
        if self.tls_secret:
            volumes.append({"name": "tls", "secret": {"secretName": self.tls_secret}})
        if volumes:
            pod["volumes"] = volumes
        pod["topologySpreadConstraints"] = [spread]
        return {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": self._meta(),
            "spec": {
                "replicas": self.replicas,
                "selector": {"matchLabels": self.labels},
                "strategy": {"rollingUpdate": {"maxUnavailable": 0, "maxSurge": 1}},
                "template": {"metadata": metadata, "spec": pod},
            },
        }

    def _container(self) -> dict[str, Any]:
        arguments = [*self.arguments(), "--page", self.page, "--metrics", self.metrics]
        ports = [{"name": "http", "containerPort": self.port}]
        mounts = [{"name": self.volume, "mountPath": self.mounted, "readOnly": True}] if self.files() else []
        probed = "http"
        if self.tls_secret:
            arguments += ["--tls-certs", TLS_FOLDER, "--probe-listen", f"0.0.0.0:{PROBE_PORT}"]
            mounts.append({"name": "tls", "mountPath": TLS_FOLDER, "readOnly": True})
            ports.append({"name": "probes", "containerPort": PROBE_PORT})
            probed = "probes"
        live = {"httpGet": {"path": "/livez", "port": probed}}
        ready = {"httpGet": {"path": "/readyz", "port": probed}}
        if port := self.webhook_port():
            ports.append({"name": "webhooks", "containerPort": port})
        made: dict[str, Any] = {
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
        }
        if mounts:
            made["volumeMounts"] = mounts
        return made


class InstallOptions(DeploymentManifests, frozen=True, kw_only=True):
    """An installation of operators: what a person chooses."""

    operators: Sequence[tuple[Operator, Any]]  # each with its configuration
    settings: dict[str, Any]  # of the configuration file: sections of operators and whatever else it holds

    def definitions(self) -> list[dict[str, Any]]:
        from steersman.crd import crd_manifest

        return [crd_manifest(kind) for operator, _ in self.operators for kind in operator.kinds]

    def rights(self) -> Permissions:
        from steersman.operators import permissions_of

        return permissions_of(self.operators)

    def arguments(self) -> list[str]:
        return ["run", "--config", f"{self.mounted}/steersman.yaml", "--log-level", "info", "--log-format", "json"]

    def files(self) -> dict[str, str]:
        return {"steersman.yaml": self.settings_file()}

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


class FileInstallation(DeploymentManifests, frozen=True, kw_only=True):
    """An installation of the controllers and webhooks in Python files, or in modules that the image holds.

    A file is put into a ConfigMap, so any image with Steersman runs it.
    """

    sources: Sequence[str]  # FILE.py or MODULE
    modules: Sequence[Any]  # what they define

    mounted: ClassVar[str] = "/etc/operator"
    volume: ClassVar[str] = "source"

    def definitions(self) -> list[dict[str, Any]]:
        from steersman.cli.install.webhooks import client_config
        from steersman.cli.python_files import controllers_in, kinds_in
        from steersman.crd import crd_manifest

        kinds = [kind for module in self.modules for kind in kinds_in(module)]
        targets = (controller.target for module in self.modules for controller in controllers_in(module))
        kinds += [kind for kind in targets if isinstance(kind, type) and not kind.__module__.startswith("steersman.")]
        by_name: dict[str, list[Any]] = {}
        for kind in dict.fromkeys(kinds):
            by_name.setdefault(kind.KIND.qualified, []).append(kind)
        reached = client_config(f"{self.name}.{self.namespace}.svc")
        return [crd_manifest(*versions, conversion=reached) for versions in by_name.values()]

    def rights(self) -> Permissions:
        from steersman.cli.install.rbac import file_permissions

        return file_permissions(self.modules, self.name)[0]

    def unread(self) -> list[str]:
        """A line for each call whose rights cannot be read."""
        from steersman.cli.install.rbac import file_permissions

        return file_permissions(self.modules, self.name)[1]

    def arguments(self) -> list[str]:
        named = [f"{self.mounted}/{Path(name).name}" if name.endswith(".py") else name for name in self.sources]
        arguments = ["run", *named, "--leader-elect", "--lease", f"{self.namespace}/{self.name}"]
        arguments += ["--listen", f"0.0.0.0:{self.port}", "--log-format", "json"]
        if self.namespaces:
            arguments += ["--config", f"{self.mounted}/steersman.yaml"]
        if self.webhook_port():
            arguments += ["--webhooks", "--webhook-name", self.name]
        return arguments

    def files(self) -> dict[str, str]:
        import yaml

        made = {Path(name).name: Path(name).read_text() for name in self.sources if name.endswith(".py")}
        if self.namespaces:
            made["steersman.yaml"] = yaml.safe_dump({"namespaces": list(self.namespaces)})
        return made

    def webhook_port(self) -> int | None:
        from steersman.cli.install.webhooks import PORT

        return PORT if self._hooks() else None

    def manifests(self) -> list[dict[str, Any]]:
        from steersman.cli.install.webhooks import client_config
        from steersman.runtime.webhook.server import webhook_configurations

        reached = client_config(f"{self.name}.{self.namespace}.svc")
        return [*super().manifests(), *webhook_configurations(self._hooks(), name=self.name, client_config=reached)]

    def _hooks(self) -> list[Any]:
        from steersman.cli.python_files import hooks_in

        return hooks_in(self.modules)


@click.command("manifests")
@click.argument("files", nargs=-1, metavar="[FILE.py|MODULE]...")
@operators_option
@click.option("--config", type=click.Path(path_type=Path), envvar="STEERSMAN_CONFIG", help="Settings to install with.")
@click.option("--name", help="Name of everything.  [default: steersman, or the file's]")
@click.option(
    "-n", "--namespace", callback=check_namespaces, help="Where it runs.  [default: steersman; of a file: default]"
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
@manifest_output_option
def command(
    files: tuple[str, ...],
    operators: str,
    config: Path | None,
    *,
    name: str | None,
    namespace: str | None,
    namespaces: str,
    image: str | None,
    replicas: int,
    page: str,
    metrics: str,
    tls_secret: str,
    output: str,
) -> None:
    """Print everything that an installation needs: definitions, rights, settings, Deployment, Service.

    Of a file, rights are those that `steersman rbac FILE` derives, and webhooks get their configurations. FILE.py is
    put into a ConfigMap, so any image with Steersman runs it; a MODULE has to be in the image.

    \b
    Examples:
      steersman manifests examples/webapp.py -n ops | kubectl apply -f -
      steersman manifests --image example.org/steersman:1.0 | kubectl apply -f -
      steersman manifests --config steersman.yaml --namespaces shop,stock
    """
    from steersman.cli.install.rbac import configured_operators, names_in, print_manifests
    from steersman.kube.config.yaml_document import YamlDocument

    if files and (operators or config):
        raise click.UsageError("name files, or operators with --operators and --config, not both")
    common: dict[str, Any] = {"namespaces": names_in(namespaces), "replicas": replicas, "page": page}
    common |= {"metrics": metrics, "tls_secret": tls_secret}
    if files:
        made = installation_of(files, name=name, image=image, namespace=namespace or "default", **common)
        for line in made.unread():
            click.echo(f"# {line}", err=output == "json")
        print_manifests(made.manifests(), output)
        return
    chosen = configured_operators(operators, config)
    written = (YamlDocument.read(config).value or {}) if config is not None else {}
    common["namespaces"] = common["namespaces"] or written.get("namespaces", [])
    installation = InstallOptions(
        operators=chosen,
        settings=written,
        name=name or "steersman",
        namespace=namespace or "steersman",
        image=image or _own_image(),
        **common,
    )
    print_manifests(installation.manifests(), output)


def installation_of(files: Sequence[str], *, name: str | None, image: str | None, **options: Any) -> FileInstallation:
    """What installs the operator in these files; a module needs an image that holds it."""
    from steersman.cli.install.webhooks import default_name
    from steersman.cli.python_files import load_python

    inside = [file for file in files if not file.endswith(".py")]
    if inside and image is None:
        raise click.UsageError(f"--image is missing: {inside[0]} is a module, so name the image that holds it")
    return FileInstallation(
        sources=files,
        modules=[load_python(file) for file in files],
        name=name or default_name(files),
        image=image or _own_image(),
        **options,
    )


def _own_image() -> str:
    from importlib.metadata import version

    return f"steersman:{version('steersman')}"
