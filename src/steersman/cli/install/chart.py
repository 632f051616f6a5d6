"""`steersman chart`: a Helm chart for the operator in a Python file.

The templates are the manifests of `steersman manifests`, made with names that no one chooses (`_MARKS`), in whose place
expressions of Helm are put: the name and the namespace of the release, the image, the replicas. So chart and manifests
cannot differ. `Chart.yaml` and `values.yaml` are the author's and are written only when they are missing.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from steersman.cli.exit_codes import exit_code
from steersman.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from steersman.cli.install.manifests import FileInstallation

_NAME: Final = "x-release-name-x"
_NAMESPACE: Final = "x-release-namespace-x"
_IMAGE: Final = "x-image-x"
_REPLICAS: Final = 976431
_MARKS: Final = {
    _NAME: "{{ .Release.Name }}",
    _NAMESPACE: "{{ .Release.Namespace }}",
    _IMAGE: "{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}",
}
_SCALAR: Final = re.compile(rf"(?<=[:-] )\S*(?:{'|'.join(_MARKS)})\S*")


@click.command("chart")
@click.argument("files", nargs=-1, required=True, metavar="FILE.py|MODULE...")
@click.option(
    "-d", "--output-dir", type=click.Path(path_type=Path), default=Path("chart"), show_default=True, help="The chart."
)
@click.option("--name", help="Name of the chart.  [default: that of the first file]")
@click.option("--image", help="Repository of the image.  [default: steersman; of a module: the name of the chart]")
@click.option("--namespaces", default="", help="Work in these namespaces only, separated by commas.")
@click.option("--check", is_flag=True, help="Write nothing; end with 3 when the chart differs from the code.")
def command(
    files: tuple[str, ...], output_dir: Path, name: str | None, image: str | None, namespaces: str, check: bool
) -> None:
    """Write a Helm chart for the operator in a file: definitions, rights, Deployment, Service, webhooks.

    Chart.yaml and values.yaml are written only when they are missing: they are yours. Everything else follows from the
    code and is written again.

    \b
    Examples:
      steersman chart examples/webapp.py -d charts/webapp
      steersman chart shop.controller --name shop --image example.org/shop
      steersman chart examples/webapp.py -d charts/webapp --check
    """
    from steersman.cli.install.rbac import names_in

    made = chart_files(files, name=name, image=image, namespaces=names_in(namespaces))
    differs = [path for path, text in made.items() if _differs(output_dir / path, text)]
    if check:
        for path in differs:
            click.echo(f"{output_dir / path} differs from the code")
        click.get_current_context().exit(exit_code(found=bool(differs)))
    for path in differs:
        target = output_dir / path
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(made[path])
        except OSError as error:
            raise ConfigError(f"cannot be written: {error.strerror}", where=str(target)) from error
    click.echo(f"{output_dir}: {len(differs)} of {len(made)} files written")


def _differs(path: Path, text: str) -> bool:
    if not path.is_file():
        return True
    return path.name not in {"Chart.yaml", "values.yaml"} and path.read_text() != text


def chart_files(
    files: Sequence[str], *, name: str | None = None, image: str | None = None, namespaces: Sequence[str] = ()
) -> dict[str, str]:
    """Every file of the chart by its path."""
    from importlib.metadata import version

    import yaml

    from steersman.cli.install.manifests import installation_of
    from steersman.cli.install.webhooks import default_name

    name = name or default_name(files)
    is_own = all(file.endswith(".py") for file in files)
    repository, tag = (image or "steersman", version("steersman")) if is_own else (image or name, "")
    installation = installation_of(
        files, name=_NAME, image=_IMAGE, namespace=_NAMESPACE, namespaces=namespaces, replicas=_REPLICAS, page="token"
    )
    made = {
        "Chart.yaml": yaml.safe_dump(
            {
                "apiVersion": "v2",
                "name": name,
                "description": f"The operator {name}",
                "type": "application",
                "version": "0.1.0",
                "appVersion": "0.1.0",
            },
            sort_keys=False,
        ),
        "values.yaml": _VALUES.format(repository=repository, tag=tag),
    }
    for path, text in installation.files().items():
        made[f"files/{path}"] = text
    templates: dict[str, list[str]] = {}
    for manifest in installation.manifests():
        kind = manifest["kind"]
        if kind == "CustomResourceDefinition":
            made[f"crds/{manifest['spec']['names']['plural']}.yaml"] = yaml.safe_dump(manifest, sort_keys=False)
        elif kind != "Namespace":  # helm --create-namespace makes it
            templates.setdefault(_FILES.get(kind, "rbac"), []).append(_template(manifest, installation))
    templates["rbac"][0] = "".join(f"# {_escaped(line)}\n" for line in installation.unread()) + templates["rbac"][0]
    for path, parts in templates.items():
        made[f"templates/{path}.yaml"] = "---\n".join(parts)
    return made


# what is not about rights, by its kind
_FILES: Final = {
    "ConfigMap": "source",
    "Deployment": "deployment",
    "Service": "service",
    "PodDisruptionBudget": "disruption-budget",
    "MutatingWebhookConfiguration": "webhooks",
    "ValidatingWebhookConfiguration": "webhooks",
}
_VALUES: Final = """\
image:
  repository: {repository}
  tag: "{tag}"  # the appVersion of the chart when it is empty
replicas: 2  # one leads, the others wait
resources:
  requests: {{cpu: 20m, memory: 96Mi}}
  limits: {{memory: 256Mi}}
"""


def _escaped(text: str) -> str:
    """Helm evaluates comments too."""
    return text.replace("{{", "{ {")


def _template(manifest: dict[str, Any], installation: FileInstallation) -> str:
    """A manifest with expressions of Helm in the place of what a release decides."""
    import yaml

    if manifest["kind"] == "ConfigMap":  # Helm reads files as they are: source may hold its own braces
        manifest = {**manifest, "data": {path: f"x-file-{path}-x" for path in manifest["data"]}}
    text = yaml.safe_dump(manifest, sort_keys=False, width=1000)
    text = _SCALAR.sub(lambda found: f'"{found[0]}"', text)
    for mark, expression in _MARKS.items():
        text = text.replace(mark, expression)
    text = re.sub(r"x-file-(\S+)-x", r'{{ .Files.Get "files/\1" | toJson }}', text)
    if manifest["kind"] == "Deployment":
        text = text.replace(f"replicas: {_REPLICAS}", "replicas: {{ .Values.replicas }}")
        text = re.sub(
            r"( +)resources:\n(?:\1 .*\n)+", r"\1resources: {{ toYaml .Values.resources | nindent 10 }}\n", text
        )
        files = " ".join(f'(.Files.Get "files/{path}")' for path in installation.files())
        text = re.sub(r"(checksum/\w+): \S+", rf"\1: {{{{ print {files} | sha256sum }}}}", text)
    if manifest["kind"] == "PodDisruptionBudget":
        text = f"{{{{- if gt (int .Values.replicas) 1 }}}}\n{text}{{{{- end }}}}\n"
    return text
