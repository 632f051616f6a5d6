"""The kubectl tour: what people do with kubectl, chapter by chapter.

Each chapter runs in an empty namespace `tour-CHAPTER`. Nothing here expects controllers of workloads: where kubectl
waits for a rollout, the tour writes the status itself.
"""

from __future__ import annotations

import msgspec

__all__ = ["CHAPTERS", "Stop"]


class Stop(msgspec.Struct, frozen=True):
    """One command. `watch` lists (lines to read before, command to run then) for a command that goes on."""

    command: str
    stdin: str = ""
    until: str = ""  # repeat the command until its output holds this: for what a server does a moment later
    watch: tuple[tuple[int, str], ...] = ()


def run(command: str, stdin: str = "", until: str = "") -> Stop:
    return Stop(command, stdin, until)


SETTINGS = """\
apiVersion: v1
kind: ConfigMap
metadata:
  name: settings
  labels: {app: web}
data:
  mode: fast
  size: "3"
"""

WEB = """\
apiVersion: apps/v1
kind: Deployment
metadata:
  name: web
spec:
  replicas: 2
  selector:
    matchLabels: {app: web}
  template:
    metadata:
      labels: {app: web}
    spec:
      containers:
      - name: main
        image: registry.example/app:1
        ports:
        - containerPort: 80
        env:
        - name: MODE
          value: fast
"""

POD = """\
apiVersion: v1
kind: Pod
metadata:
  name: shell
spec:
  automountServiceAccountToken: false
  containers:
  - name: main
    image: registry.example/shell
"""

BACKUPS = """\
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata:
  name: backups.tour.example.org
spec:
  group: tour.example.org
  scope: Namespaced
  names: {plural: backups, kind: Backup, shortNames: [bk], categories: [all]}
  versions:
  - name: v1
    served: true
    storage: true
    additionalPrinterColumns:
    - {name: Schedule, type: string, jsonPath: .spec.schedule}
    - {name: Keep, type: integer, jsonPath: .spec.keep}
    - {name: Phase, type: string, jsonPath: .status.phase, priority: 1}
    - {name: Age, type: date, jsonPath: .metadata.creationTimestamp}
    subresources:
      status: {}
      scale: {specReplicasPath: .spec.keep, statusReplicasPath: .status.kept}
    schema:
      openAPIV3Schema:
        description: A Backup copies data away.
        type: object
        required: [spec]
        properties:
          spec:
            description: What is wished for.
            type: object
            required: [schedule]
            properties:
              schedule: {type: string, description: When it runs., minLength: 2}
              keep: {type: integer, default: 3, minimum: 1, description: How many are kept.}
              mode: {type: string, enum: [full, partial]}
              targets:
                description: Where copies go.
                type: array
                x-kubernetes-list-type: map
                x-kubernetes-list-map-keys: [name]
                items:
                  type: object
                  required: [name]
                  properties:
                    name: {type: string}
                    path: {type: string, description: Inside the target.}
          status:
            type: object
            properties:
              phase: {type: string}
              kept: {type: integer}
              conditions:
                type: array
                items:
                  type: object
                  properties:
                    type: {type: string}
                    status: {type: string}
"""

NIGHTLY = """\
apiVersion: tour.example.org/v1
kind: Backup
metadata:
  name: nightly
spec:
  schedule: "@daily"
  targets:
  - name: disk
    path: /backup
"""

AVAILABLE = (
    '{"status":{"observedGeneration":%d,"replicas":%d,"updatedReplicas":%d,"readyReplicas":%d,"availableReplicas":%d,'
    '"conditions":[{"type":"Available","status":"True","reason":"MinimumReplicasAvailable","message":"fine"},'
    '{"type":"Progressing","status":"True","reason":"NewReplicaSetAvailable","message":"done"}]}}'
)


def available(generation: int, replicas: int) -> str:
    """What the Deployment controller writes when a rollout is done."""
    return AVAILABLE % (generation, replicas, replicas, replicas, replicas)


CHAPTERS: dict[str, list[Stop]] = {
    "configmaps": [
        run("get configmaps -l app=web"),
        run("create -f -", SETTINGS),
        run("create -f -", SETTINGS),
        run("get configmap settings"),
        run("get cm -l app=web -o wide"),
        run("get cm settings -o yaml"),
        run("get cm settings -o json"),
        run("get cm -l app=web -o name"),
        run("get cm settings -o jsonpath={.data.mode}"),
        run("get cm settings -o custom-columns=NAME:.metadata.name,MODE:.data.mode"),
        run("get cm settings --show-labels"),
        run("get cm -L app -l app=web"),
        run("get cm settings -o yaml --show-managed-fields"),
        run("get cm nothing"),
        run("get nothings"),
        run("describe cm settings"),
        run("label cm settings tier=front"),
        run("label cm settings tier=back"),
        run("label cm settings tier=back --overwrite"),
        run("label cm settings tier-"),
        run("annotate cm settings note=first"),
        run("annotate cm settings note-"),
        run("""patch cm settings -p '{"data":{"mode":"slow"}}'"""),
        run("""patch cm settings --type merge -p '{"data":{"size":null}}'"""),
        run("""patch cm settings --type json -p '[{"op":"add","path":"/data/new","value":"1"}]'"""),
        run("""patch cm settings --type json -p '[{"op":"test","path":"/data/new","value":"2"}]'"""),
        run("""patch cm settings --type json -p '[{"op":"remove","path":"/data/none"}]'"""),
        run("""patch cm settings -p '{"data":{"mode":"slow"}}'"""),
        run("get cm settings -o yaml"),
        run("create configmap other --from-literal=a=1 --from-literal=b=2"),
        run("create configmap dry --from-literal=a=1 --dry-run=server -o name"),
        run("get cm settings other"),
        run("replace -f -", SETTINGS),
        run("delete cm other --dry-run=server"),
        run("delete cm other"),
        run("delete cm other"),
        run("delete cm other --ignore-not-found"),
        run("delete cm -l app=web"),
    ],
    "badinput": [
        run("create -f -", "this is not yaml: ["),
        run("create -f -", "just text"),
        run("create -f -", SETTINGS.replace("settings", "Not_A_Name")),
        run("create -f -", SETTINGS.replace("data:", "dota:")),
        run("create --validate=ignore -f -", SETTINGS.replace("data:", "dota:")),
        run("create --validate=warn -f -", SETTINGS.replace("data:", "dota:").replace("settings", "warned")),
        run("create -f -", SETTINGS.replace("ConfigMap", "ConfigMop")),
        run("create -f -", SETTINGS.replace("v1", "v9")),
        run("create -f -", SETTINGS.replace('"3"', "3").replace("settings", "numbers")),
        run("create -f -", WEB.replace("replicas: 2", "replicas: -2")),
        run("create -f -", WEB.replace("replicas: 2", "replicas: many")),
        run("create -f -", WEB.replace("matchLabels: {app: web}", "matchLabels: {app: other}")),
        run("create -f -", WEB.replace("        image: registry.example/app:1\n", "")),
        run("create -f -", WEB.replace("image:", "imige:")),
        run("create -f -", SETTINGS.replace("  name: settings\n", "")),
        run("apply -f -", SETTINGS.replace("name: settings", "name: settings\n  namespace: elsewhere")),
        run("get pods --field-selector nope=1"),
        run("get pods -l 'a in'"),
    ],
    "apply": [
        run("apply -f -", SETTINGS),
        run("apply -f -", SETTINGS),
        run("apply -f -", SETTINGS.replace("fast", "slow")),
        run("apply view-last-applied cm settings"),
        run("apply -f -", SETTINGS.replace('  size: "3"\n', "")),
        run("get cm settings -o jsonpath={.data}"),
        run("diff -f -", SETTINGS),
        run("diff -f -", SETTINGS.replace('  size: "3"\n', "")),
        run("apply --dry-run=server -f -", SETTINGS),
        run("apply --dry-run=client -f -", SETTINGS),
        run("apply -f -", WEB),
        run("apply -f -", WEB.replace("app:1", "app:2")),
        run("apply -f -", WEB.replace("app:1", "app:2").replace("- name: MODE", "- name: OTHER")),
        run("get deploy web -o jsonpath={.spec.template.spec.containers[0].env}"),
        run("diff -f -", WEB),
        run("delete -f -", WEB),
    ],
    "serverside": [
        run("apply --server-side -f -", SETTINGS),
        run("apply --server-side -f -", SETTINGS),
        run("apply --server-side --field-manager=other -f -", SETTINGS.replace("fast", "slow")),
        run("apply --server-side --field-manager=other --force-conflicts -f -", SETTINGS.replace("fast", "slow")),
        run("get cm settings -o yaml --show-managed-fields"),
        run("apply --server-side -f -", SETTINGS),
        run("apply --server-side --force-conflicts -f -", SETTINGS.replace('  size: "3"\n', "")),
        run("get cm settings -o jsonpath={.data}"),
        run("apply --server-side --dry-run=server -f -", SETTINGS),
        run("diff --server-side -f -", SETTINGS),
        run("apply --server-side -f -", WEB),
        run("scale deploy web --replicas=5"),
        run("apply --server-side -f -", WEB),
        run("apply --server-side --force-conflicts -f -", WEB),
        run("apply -f -", SETTINGS.replace("settings", "client")),
        run("apply --server-side -f -", SETTINGS.replace("settings", "client")),
        run("get cm client -o yaml --show-managed-fields"),
        run("apply --server-side -f -", WEB.replace("containerPort: 80", "containerPort: many")),
    ],
    "deployments": [
        run("create -f -", WEB),
        run("get deployments"),
        run("get deploy web -o wide"),
        run("get deploy web -o yaml"),
        run("describe deploy web"),
        run("scale deploy web --replicas=4"),
        run("scale deploy web --replicas=4 --current-replicas=3"),
        run("scale deploy web --replicas=3 --current-replicas=4"),
        run("set image deploy/web main=registry.example/app:7"),
        run("set env deploy/web MODE=slow EXTRA=1"),
        run("set resources deploy/web --limits=cpu=200m,memory=512Mi"),
        run("get deploy web -o jsonpath={.metadata.generation}"),
        run(f"patch deploy web --subresource=status --type=merge -p '{available(6, 3)}'"),
        run("rollout status deploy/web --timeout=5s"),
        run("wait --for=condition=Available deploy/web --timeout=5s"),
        run("wait --for=jsonpath='{.status.readyReplicas}'=3 deploy/web --timeout=5s"),
        run("wait --for=condition=Nothing deploy/web --timeout=1s"),
        run("get deploy web"),
        run("rollout pause deploy/web"),
        run("rollout resume deploy/web"),
        run("rollout history deploy/web"),
        run("rollout restart deploy/web"),
        run("rollout status deploy/web --watch=false"),
        run("autoscale deploy web --min=1 --max=5"),
        run("get hpa"),
        run("expose deploy web --port=80 --target-port=8080"),
        run("get svc web"),
        run("get svc web -o yaml"),
        run("describe svc web"),
        run("create pdb web --selector=app=web --min-available=1"),
        run("get pdb"),
        run("get all"),
        run("delete deploy web --wait=true"),
        run("wait --for=delete deploy/web --timeout=5s"),
        run("get deploy"),
    ],
    "pods": [
        run("get serviceaccount default", until="default"),
        run("create -f -", POD),
        run("get pods"),
        run("get pod shell -o wide"),
        run("get pod shell -o yaml"),
        run(
            'patch pod shell --subresource=status --type=merge -p \'{"status":{"phase":"Running","podIP":"10.1.2.3",'
            '"podIPs":[{"ip":"10.1.2.3"}],"conditions":[{"type":"Ready","status":"True"}],"containerStatuses":[{"name":'
            '"main","ready":true,"started":true,"restartCount":2,"image":"registry.example/shell","imageID":"",'
            '"state":{"running":{}}}]}}\''
        ),
        run("get pods"),
        run("get pods -o wide"),
        run("wait --for=condition=Ready pod/shell --timeout=5s"),
        run("get pods --field-selector status.phase=Running"),
        run("get pods --sort-by=.metadata.name"),
        run("label pod shell app=web"),
        run("get pods -l app=web --no-headers"),
        run('patch pod shell -p \'{"spec":{"hostname":"x"}}\''),
        run("set image pod/shell main=registry.example/shell:2"),
        run("run extra --image=registry.example/app:1"),
        run("get pods"),
        run("delete pod extra --grace-period=0 --force"),
        run("delete pod shell --now"),
        run("get pods"),
    ],
    "watch": [
        run("create configmap first --from-literal=a=1"),
        Stop(
            "get secrets -w",
            watch=(
                (0, "create secret generic one --from-literal=a=1"),
                (2, "label secret one x=y"),
                (3, "create secret generic two"),
                (4, "delete secret one"),
                (5, ""),
            ),
        ),
        Stop(
            "get secrets -w --output-watch-events",
            watch=((2, "label secret two x=y"), (3, "delete secret two"), (4, "")),
        ),
        Stop(
            "get cm first -w -o name",
            watch=((1, "label cm first x=y"), (2, "")),
        ),
    ],
    "custom": [
        run("apply -f -", BACKUPS),
        run("wait --for=condition=Established crd/backups.tour.example.org --timeout=20s"),
        run("get backups", until=""),
        run("get crd backups.tour.example.org"),
        run("api-resources --api-group=tour.example.org", until="backups"),
        run("explain backups", until="FIELDS"),
        run("explain backup.spec"),
        run("explain backup.spec.keep"),
        run("explain bk.spec.targets --recursive"),
        run("explain backup --recursive"),
        run("explain backup.spec.nothing"),
        run("create -f -", NIGHTLY),
        run("get backups"),
        run("get bk -o wide"),
        run("get backup nightly -o yaml"),
        run("describe backup nightly"),
        run("apply -f -", NIGHTLY),
        run("apply -f -", NIGHTLY.replace("@daily", "@hourly")),
        run("apply --server-side -f -", NIGHTLY.replace("@daily", "@weekly")),
        run("apply --server-side --force-conflicts -f -", NIGHTLY.replace("@daily", "@weekly")),
        run("create -f -", NIGHTLY.replace("nightly", "bad").replace('"@daily"', "3")),
        run("create -f -", NIGHTLY.replace("nightly", "bad").replace('"@daily"', '"x"')),
        run("create -f -", NIGHTLY.replace("nightly", "bad").replace('schedule: "@daily"', "mode: quick")),
        run("create -f -", NIGHTLY.replace("nightly", "bad").replace("path:", "puth:")),
        run("""patch backup nightly --type merge -p '{"spec":{"keep":0}}'"""),
        run("""patch backup nightly -p '{"spec":{"keep":5}}'"""),
        run("""patch backup nightly --type merge --subresource=status -p '{"status":{"phase":"Done"}}'"""),
        run("scale backup nightly --replicas=7"),
        run("get bk -o wide"),
        run("wait --for=jsonpath='{.status.phase}'=Done backup/nightly --timeout=5s"),
        run("get all"),
        run("delete backup nightly"),
        run("delete crd backups.tour.example.org"),
        run("get crd backups.tour.example.org"),
    ],
    "explain": [
        run("explain configmap"),
        run("explain deployment.spec.strategy"),
        run("explain pods.spec.containers.env"),
        run("explain deploy.spec.template.spec.containers.resources --recursive"),
        run("explain service.spec.ports"),
        run("explain cronjobs"),
        run("explain nothing"),
        run("explain pod.spec.nothing"),
    ],
    "kinds": [
        run("create secret generic token --from-literal=key=value"),
        run("get secret token"),
        run("describe secret token"),
        run("get secret token -o jsonpath={.data.key}"),
        run("create serviceaccount robot"),
        run("get sa robot"),
        run("create token robot --duration=1h"),
        run("create role reader --verb=get,list --resource=pods,configmaps"),
        run("create rolebinding reader --role=reader --serviceaccount=default:robot"),
        run("get role,rolebinding"),
        run("describe role reader"),
        run("create job once --image=registry.example/app:1 -- run"),
        run("get jobs"),
        run("create cronjob daily --schedule=@daily --image=registry.example/app:1 -- run"),
        run("get cronjobs"),
        run("create ingress web --rule=shop.example/*=web:80"),
        run("get ingress"),
        run("create service clusterip plain --tcp=80:8080"),
        run("create service nodeport node --tcp=80"),
        run("create service externalname away --external-name=away.example"),
        run("get svc"),
        run("create quota small --hard=pods=2"),
        run("get quota small -o jsonpath={.spec.hard}"),  # its status is written here at once, there by a controller
        run("create quota unlimited"),
        run("get quota unlimited"),
        run("create priorityclass tour-high --value=100"),
        run("get priorityclass tour-high"),
        run("get ns default"),
        run("get ns kube-system -o jsonpath={.status.phase}"),
        run("get leases"),
        run("get all"),
    ],
    "access": [
        run("version"),
        run("auth can-i create pods"),
        run("auth can-i delete nodes --all-namespaces"),
        run("auth can-i get nothings"),
        run("get --raw /healthz"),
        run("get --raw /readyz"),
        run("create namespace tour-extra"),
        run("create namespace tour-extra"),
        run("get ns tour-extra"),
        run("describe ns tour-extra"),
        run("delete ns tour-extra"),
        run("get ns tour-extra"),
        run("delete ns default"),
    ],
}
