{{- define "seawall.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{- define "seawall.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 63 | trimSuffix "-" -}}
{{- else if contains (include "seawall.name" .) .Release.Name -}}
{{- .Release.Name | trunc 63 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name (include "seawall.name" .) | trunc 63 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "seawall.selector" -}}
app.kubernetes.io/name: {{ include "seawall.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "seawall.labels" -}}
{{ include "seawall.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end -}}

{{/* The host names of the service, as a TOML list. Seawall answers to loopback and to these. */}}
{{- define "seawall.hosts" -}}
{{- $name := include "seawall.fullname" . -}}
{{- $space := printf "%s.%s" $name .Release.Namespace -}}
{{- list $name $space (printf "%s.svc" $space) (printf "%s.svc.cluster.local" $space) | toJson -}}
{{- end -}}

{{- define "seawall.serviceAccount" -}}
{{- if .Values.serviceAccount.create -}}
{{- default (include "seawall.fullname" .) .Values.serviceAccount.name -}}
{{- else -}}
{{- default "default" .Values.serviceAccount.name -}}
{{- end -}}
{{- end -}}

{{- define "seawall.adminSecret" -}}
{{- default (printf "%s-admin" (include "seawall.fullname" .)) .Values.admin.existingSecret -}}
{{- end -}}

{{- define "seawall.image" -}}
{{- if .Values.image.digest -}}
{{- printf "%s@%s" .Values.image.repository .Values.image.digest -}}
{{- else -}}
{{- printf "%s:%s" .Values.image.repository (default .Chart.AppVersion .Values.image.tag) -}}
{{- end -}}
{{- end -}}

{{- define "seawall.configMap" -}}
{{- if not .Values.agentgateway.enabled -}}
{{- include "seawall.fullname" . -}}
{{- else -}}
{{- default (printf "%s-agentgateway-static-config" .Release.Name) .Values.agentgateway.existingConfigMap -}}
{{- end -}}
{{- end -}}

{{- define "seawall.configFile" -}}
{{- ternary "config.yaml" "seawall.toml" .Values.agentgateway.enabled -}}
{{- end -}}

{{/* What the values say together and must not: each is told with what to do. */}}
{{- define "seawall.checked" -}}
{{- $v := .Values -}}
{{- $ext := $v.global.agentgateway.extAuth -}}
{{- if $v.agentgateway.enabled -}}
{{- if $v.config -}}
{{- fail "config and agentgateway.enabled are both set: Seawall reads one file; empty one of them" -}}
{{- end -}}
{{- if not $v.agentgateway.existingConfigMap -}}
{{- range $key := list "issuer" "audiences" "jwksUrl" -}}
{{- if not (index $v.agentgateway.jwtAuth $key) -}}
{{- fail (printf "agentgateway.jwtAuth.%s is empty: Seawall listens off loopback only for callers that it can tell apart; set it" $key) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- else -}}
{{- if not (trim $v.config) -}}
{{- fail "config is empty: give Seawall's configuration as text (examples/native.yaml), or set agentgateway.enabled" -}}
{{- end -}}
{{- $lines := regexReplaceAll "(?m)^\\s*#.*$" $v.config "" -}}
{{- if not (regexMatch "(?m)^\\s*\\[\\[?\\s*identity\\b" $lines) -}}
{{- fail "config has no [identity]: Seawall does not listen off loopback without it (examples/native.yaml)" -}}
{{- end -}}
{{- if not (regexMatch "(?m)^\\s*\\[\\s*admin\\s*\\]" $lines) -}}
{{- fail "config has no [admin]: it answers the probes (examples/native.yaml)" -}}
{{- end -}}
{{- /* A string in three quotes is read like one in one; a key may be quoted, dotted or in an inline table. */ -}}
{{- $plain := regexReplaceAll "(\"\"\"|''')\\s*" $lines "\"" -}}
{{- if regexMatch "(?im)(^|[\\s.{,\"'])[a-z0-9_-]*(token|secret|password|api[_-]?key)[\"']?\\s*=\\s*[\"']([^$\"']|\\$[^{])" $plain -}}
{{- fail "config has a token in plain text, which a ConfigMap shows to everybody: write ${env:NAME}, and NAME in secretEnv" -}}
{{- end -}}
{{- if regexMatch "(?i)[\"'][ \\t]*(bearer|basic)[ \\t]+([^$\\s\"']|\\$[^{])" $plain -}}
{{- fail "config has a bearer token in plain text, which a ConfigMap shows to everybody: write ${env:NAME}, and NAME in secretEnv" -}}
{{- end -}}
{{- if regexMatch "[\"'](ghp_|gho_|ghs_|github_pat_|glpat-|xox[abp]-|sk-|AKIA)|://[^/\\s\"'@:$]+:[^/\\s\"'@$]+@" $plain -}}
{{- fail "config has what looks like a secret in plain text, which a ConfigMap shows to everybody: write ${env:NAME}, and NAME in secretEnv" -}}
{{- end -}}
{{- if and $ext.enabled (not $v.agentgateway.crd.enabled) (not (regexMatch "(?m)^\\s*\\[(servers\\.[^\\]]+\\.)?ext_authz\\]" $lines)) -}}
{{- fail "global.agentgateway.extAuth.enabled is true and nothing would ask the authorizer: put [ext_authz] into config, or set agentgateway.enabled or agentgateway.crd.enabled" -}}
{{- end -}}
{{- end -}}
{{- $ids := list -}}
{{- range $v.agentgateway.targets -}}
{{- if has .id $ids -}}
{{- fail (printf "agentgateway.targets has %q twice: every route /mcp/<id> has one target" .id) -}}
{{- end -}}
{{- $ids = append $ids .id -}}
{{- end -}}
{{- if eq (int $v.service.port) (int $v.service.adminPort) -}}
{{- fail "service.port and service.adminPort are the same" -}}
{{- end -}}
{{- if and $v.state.persistent (or $v.autoscaling.enabled (gt (int $v.replicaCount) 1)) -}}
{{- fail "state.persistent is for one pod: set replicaCount to 1 and autoscaling.enabled to false, or state.persistent to false" -}}
{{- end -}}
{{- end -}}
