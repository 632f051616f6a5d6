"""Helm as it is: install, upgrade, a failure, rollback and uninstall of a small chart print the same on both servers.

The workloads of both become ready, by simulation here and by the real controllers with KWOK there, so `--wait` ends.
"""

from __future__ import annotations

import re
import textwrap
from typing import TYPE_CHECKING

import pytest

from steersman.testing.controlplane.binaries import BinariesError, find_program
from steersman.testing.plugin import unavailable
from steersman.testing.programs import Program

if TYPE_CHECKING:
    from pathlib import Path

    from steersman.testing.controlplane.launcher import ControlPlane
    from steersman.testing.raw_api import ApiServer

NAMESPACE = "helm-conformance"
CHART = {
    "Chart.yaml": """
        apiVersion: v2
        name: shop
        version: 1.2.3
        appVersion: "7"
        """,
    "values.yaml": """
        mode: fast
        size: 2
        """,
    "crds/gadgets.yaml": """
        apiVersion: apiextensions.k8s.io/v1
        kind: CustomResourceDefinition
        metadata: {name: gadgets.helm.conformance.example}
        spec:
          group: helm.conformance.example
          scope: Namespaced
          names: {plural: gadgets, kind: Gadget}
          versions:
          - name: v1
            served: true
            storage: true
            schema:
              openAPIV3Schema:
                type: object
                properties:
                  spec:
                    type: object
                    properties:
                      size: {type: integer, minimum: 1}
        """,
    "templates/NOTES.txt": """
        {{ .Release.Name }} runs {{ .Values.mode }}, revision {{ .Release.Revision }}, on {{ .Capabilities.KubeVersion.Major }}.
        Found: {{ (lookup "v1" "ConfigMap" .Release.Namespace "before").data }}
        Gadgets: {{ .Capabilities.APIVersions.Has "helm.conformance.example/v1" }}
        """,  # noqa: E501
    "templates/objects.yaml": """
        apiVersion: v1
        kind: ConfigMap
        metadata: {name: settings}
        data: {mode: "{{ .Values.mode }}"}
        ---
        apiVersion: v1
        kind: Service
        metadata: {name: web}
        spec:
          selector: {app: web}
          ports: [{port: 80}]
        ---
        apiVersion: apps/v1
        kind: Deployment
        metadata: {name: web}
        spec:
          replicas: {{ .Values.size }}
          selector: {matchLabels: {app: web}}
          template:
            metadata:
              labels: {app: web}
              annotations: {mode: "{{ .Values.mode }}"}
            spec:
              containers: [{name: main, image: "registry.example/app:1"}]
        ---
        apiVersion: helm.conformance.example/v1
        kind: Gadget
        metadata: {name: shop}
        spec: {size: {{ .Values.size }}}
        """,
    "templates/hook.yaml": """
        apiVersion: v1
        kind: ConfigMap
        metadata:
          name: before
          annotations:
            helm.sh/hook: pre-install,pre-upgrade
            helm.sh/hook-delete-policy: before-hook-creation
        data: {revision: "{{ .Release.Revision }}"}
        """,
}
WAIT = "--wait --timeout 300s"
STORY = [
    "helm install shop CHART --create-namespace --dry-run=server",
    f"kubectl get namespace {NAMESPACE} -o name",
    f"helm install shop CHART --create-namespace {WAIT}",
    "helm install shop CHART",
    "kubectl get deploy,service,gadget -o name",
    "kubectl get deploy web -o jsonpath={.status.readyReplicas}{.metadata.labels}{.metadata.annotations}",
    "kubectl get secrets -l owner=helm -o custom-columns=N:.metadata.name,S:.metadata.labels.status --no-headers",
    "helm list",
    "helm status shop",
    "helm get manifest shop",
    "helm upgrade shop CHART --set mode=slow --dry-run=server",
    "kubectl get configmap settings -o jsonpath={.data}",
    f"helm upgrade shop CHART --set mode=slow,size=3 {WAIT}",
    "kubectl get configmap settings -o jsonpath={.data}",
    "kubectl get configmap before -o jsonpath={.data}",
    "kubectl get gadget shop -o jsonpath={.spec}{.metadata.generation}",
    "helm upgrade shop CHART --set size=0",
    "helm history shop",
    f"helm rollback shop 1 {WAIT}",
    "kubectl get deploy web -o jsonpath={.status.readyReplicas}{.spec.template.metadata.annotations}",
    "kubectl get gadget shop -o jsonpath={.spec}{.metadata.generation}",
    "helm history shop",
    "helm get values shop --all",
    f"helm uninstall shop {WAIT}",
    "helm uninstall shop",
    "helm list",
    "kubectl get deploy,service,gadget,secret -o name",
    "kubectl delete crd gadgets.helm.conformance.example",
    f"kubectl delete namespace {NAMESPACE}",
]
DIFFERENT = (
    (re.compile(r"\w{3} \w{3} +\d+ \d\d:\d\d:\d\d \d{4}"), "TIME"),
    (re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(\.\d+)? [+-]\d{4} \w+"), "TIME"),
    (re.compile(r"((?:is invalid: ).*?: Invalid value).*"), r"\1"),  # its sentences are its own
    (re.compile(r"\bweb-[a-z0-9]+-[a-z0-9]{5}\b"), "POD"),
    (re.compile(r"\b10\.\d+\.\d+\.\d+"), "ADDRESS"),
    (re.compile(r"(?<=\s)(\d+[smh]){1,2}$", re.MULTILINE), "AGE"),
    (re.compile(r"^[IWE]\d{4} .*\n", re.MULTILINE), ""),  # of klog, about waiting
    (re.compile(r"[ \t]+"), " "),
)


@pytest.mark.slow
@pytest.mark.timeout(900)
async def test_helm_says_the_same_on_both_servers(simulated: ApiServer, full: ControlPlane, tmp_path: Path):
    await full.add_nodes("helm-1")
    chart = tmp_path / "chart"
    for name, text in CHART.items():
        (chart / name).parent.mkdir(parents=True, exist_ok=True)
        (chart / name).write_text(textwrap.dedent(text).lstrip("\n"))
    for name in ("ours", "theirs"):
        (tmp_path / name).mkdir()
    ours, theirs = [
        await tell(server, chart, tmp_path / name) for name, server in (("ours", simulated), ("theirs", full))
    ]
    assert ours == theirs
    assert "shop runs slow, revision 2, on 1." in ours[f"12 helm upgrade shop CHART --set mode=slow,size=3 {WAIT}"]


async def tell(server: ApiServer, chart: Path, home: Path) -> dict[str, list[str]]:
    """What every command of the story says."""
    server.write_kubeconfig(home / "kubeconfig")
    try:
        programs = {name: Program(find_program(name), home / "kubeconfig", home=home) for name in ("helm", "kubectl")}
    except BinariesError as error:
        unavailable(error)
    said = {}
    for number, command in enumerate(STORY):
        program, *arguments = command.replace("CHART", str(chart)).split()
        output = await programs[program](*arguments, "--namespace", NAMESPACE, check=False)
        text = f"exit {output.code}\n{output.out}\n{output.err}".replace(str(chart), "CHART")
        for pattern, replacement in DIFFERENT:
            text = pattern.sub(replacement, text)
        lines = [line.rstrip() for line in text.splitlines()]
        said[f"{number} {command}"] = sorted(lines) if command == "helm status shop" else lines  # kinds in any order
    return said
