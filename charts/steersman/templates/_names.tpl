{{- define "steersman.name" -}}
{{- if contains "steersman" .Release.Name }}{{ .Release.Name | trunc 52 | trimSuffix "-" }}{{ else }}{{ printf "%s-steersman" .Release.Name | trunc 52 | trimSuffix "-" }}{{ end -}}
{{- end }}

{{- define "steersman.account" -}}
{{- .Values.serviceAccount.name | default (include "steersman.name" .) -}}
{{- end }}

{{- define "steersman.selector" -}}
app.kubernetes.io/name: steersman
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "steersman.labels" -}}
{{ include "steersman.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end }}

{{- define "steersman.image" -}}
{{- if .Values.image.digest -}}
{{ .Values.image.repository }}@{{ .Values.image.digest }}
{{- else -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end -}}
{{- end }}

{{- /* The configuration file: the operators, where they work, and their sections. */ -}}
{{- define "steersman.settings" -}}
{{- $settings := dict "operators" .Values.operators "leaderElect" true "lease" (printf "%s/%s" .Release.Namespace (include "steersman.name" .)) "listen" (printf "0.0.0.0:%v" .Values.service.port) -}}
{{- if .Values.namespaces }}{{ $_ := set $settings "namespaces" .Values.namespaces }}{{ end -}}
{{- toYaml (merge $settings .Values.config) -}}
{{- end }}

{{- /* The generated rules of every operator that runs, then the extra ones. $scope is "cluster", "namespace" or "own" (of the process itself). */ -}}
{{- define "steersman.rules" -}}
{{- $root := index . 0 }}{{ $scope := index . 1 -}}
{{- range $root.Values.operators }}
{{- $found := $root.Files.Get (printf "files/rules/%s.yaml" .) | fromYaml }}
{{- range (index $found $scope) }}
- {{ toJson . }}
{{- end }}
{{- end }}
{{- if eq $scope "namespace" }}
{{- range $root.Values.rbac.extraRules }}
- {{ toJson . }}
{{- end }}
{{- end }}
{{- end }}
