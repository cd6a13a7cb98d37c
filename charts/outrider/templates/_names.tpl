{{/* Name of everything that the release owns; cut where Kubernetes would refuse it. */}}
{{- define "outrider.name" -}}
{{- $name := .Release.Name | trimSuffix "-operator" -}}
{{- if not (contains "outrider" $name) -}}{{- $name = printf "%s-outrider" $name -}}{{- end -}}
{{- printf "%s-operator" ($name | trunc 50 | trimSuffix "-") -}}
{{- end -}}

{{/* Labels that pick the operator's pods; they never change. Drafts let in pods with the first two. */}}
{{- define "outrider.selector" -}}
app.kubernetes.io/name: outrider
app.kubernetes.io/component: operator
app.kubernetes.io/instance: {{ .Release.Name | quote }}
{{- end -}}

{{- define "outrider.labels" -}}
{{- with omit .Values.commonLabels "app.kubernetes.io/name" "app.kubernetes.io/component" "app.kubernetes.io/instance" "app.kubernetes.io/version" "app.kubernetes.io/part-of" "app.kubernetes.io/managed-by" "helm.sh/chart" }}
{{- toYaml . }}
{{ end }}
{{- include "outrider.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/part-of: outrider
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end -}}

{{- define "outrider.account" -}}
{{- if .Values.serviceAccount.create -}}
{{ .Values.serviceAccount.name | default (include "outrider.name" .) }}
{{- else -}}
{{ required "serviceAccount.name is needed where serviceAccount.create is false" .Values.serviceAccount.name }}
{{- end -}}
{{- end -}}

{{/* An image of the values, by its digest where it has one. */}}
{{- define "outrider.imageOf" -}}
{{- $image := index . 0 -}}
{{- with $image.digest -}}
{{ $image.repository }}@{{ . }}
{{- else -}}
{{ $image.repository }}:{{ $image.tag | default (index . 1).Chart.AppVersion }}
{{- end -}}
{{- end -}}

{{- define "outrider.image" -}}
{{ include "outrider.imageOf" (list .Values.image .) }}
{{- end -}}

{{/* What the security of all pods and containers of the chart is, with the values over it. */}}
{{- define "outrider.podSecurity" -}}
{{- $own := dict "runAsNonRoot" true "seccompProfile" (dict "type" "RuntimeDefault") -}}
{{- if eq (include "outrider.podUser" .) "Fixed" -}}
{{- $own = merge $own (dict "runAsUser" 65532 "runAsGroup" 65532 "fsGroup" 65532) -}}
{{- end -}}
{{ toYaml (mergeOverwrite $own (deepCopy (.Values.podSecurityContext | default dict))) }}
{{- end -}}

{{- define "outrider.containerSecurity" -}}
{{- $own := dict "allowPrivilegeEscalation" false "readOnlyRootFilesystem" true -}}
{{- $own = merge $own (dict "capabilities" (dict "drop" (list "ALL"))) -}}
{{ toYaml (mergeOverwrite $own (deepCopy (.Values.securityContext | default dict))) }}
{{- end -}}

{{/* Several pods want nodes of their own, unless the values say how they want to be apart. */}}
{{- define "outrider.affinity" -}}
{{- $apart := dict }}
{{- if gt (int .Values.replicas) 1 }}
{{- $term := dict "topologyKey" "kubernetes.io/hostname" "labelSelector" (dict "matchLabels" (include "outrider.selector" . | fromYaml)) }}
{{- $wish := dict "weight" 100 "podAffinityTerm" $term }}
{{- $apart = dict "podAntiAffinity" (dict "preferredDuringSchedulingIgnoredDuringExecution" (list $wish)) }}
{{- end }}
{{- $own := .Values.affinity | default dict }}
{{- toYaml (merge (dict) $own (ternary (dict) $apart (hasKey $own "podAntiAffinity"))) }}
{{- end -}}

{{/* Where the leader's Lease is: in a namespace that is watched, for its changes show that watches live. */}}
{{- define "outrider.leaseNamespace" -}}
{{- first (append (.Values.namespaces | default list) .Release.Namespace) -}}
{{- end -}}

{{/* Fixed: pods name the images' user. Assigned: they leave it to the platform. */}}
{{- define "outrider.podUser" -}}
{{- if ne .Values.podUser "Auto" -}}
{{ .Values.podUser }}
{{- else -}}
{{ ternary "Assigned" "Fixed" (.Capabilities.APIVersions.Has "security.openshift.io/v1") }}
{{- end -}}
{{- end -}}

{{/* The Secret with the operator's own certificate, where an issuer signs it; empty: it signs itself. */}}
{{- define "outrider.peerSecret" -}}
{{- if and .Values.certificates.enabled .Values.certificates.issuerRef.name -}}
{{ include "outrider.name" . }}-issued
{{- end -}}
{{- end -}}

{{/* Of what `helm test` makes. */}}
{{- define "outrider.testLabels" -}}
{{- with omit .Values.commonLabels "app.kubernetes.io/name" "app.kubernetes.io/component" "app.kubernetes.io/instance" }}
{{- toYaml . }}
{{ end -}}
app.kubernetes.io/name: outrider
app.kubernetes.io/component: test
app.kubernetes.io/instance: {{ .Release.Name | quote }}
{{- end -}}

{{/* Labels and annotations of a test's pod: those of the operator's, which keep it out of a mesh. */}}
{{- define "outrider.testPodLabels" -}}
{{- $mine := include "outrider.testLabels" . | fromYaml -}}
{{- toYaml (merge $mine (.Values.podLabels | default dict)) }}
{{- end -}}

{{- define "outrider.testPodAnnotations" -}}
{{- toYaml (merge (include "outrider.testHook" 0 | fromYaml) (.Values.podAnnotations | default dict)) }}
{{- end -}}

{{- define "outrider.testHook" -}}
helm.sh/hook: test
helm.sh/hook-weight: {{ . | quote }}
helm.sh/hook-delete-policy: before-hook-creation,hook-succeeded
{{- end -}}

{{/* Fails where names of volumes collide, a mount has none, a spread is there twice, or args begin with no flag. */}}
{{- define "outrider.checkPod" -}}
{{- $names := list }}
{{- if include "outrider.peerSecret" . }}{{ $names = list "certificates" }}{{ end }}
{{- range .Values.volumes }}
{{- if has .name $names }}{{ fail (printf "volumes: the name %q is there twice" .name) }}{{ end }}
{{- $names = append $names .name }}
{{- end }}
{{- $paths := list "/etc/outrider/certificates" }}
{{- range .Values.volumeMounts }}
{{- if not (has .name $names) }}{{ fail (printf "volumeMounts: %q is not allowed; allowed: names of volumes: %s" .name (join ", " $names)) }}{{ end }}
{{- if has .mountPath $paths }}{{ fail (printf "volumeMounts: the mountPath %q is there twice" .mountPath) }}{{ end }}
{{- $paths = append $paths .mountPath }}
{{- end }}
{{- with .Values.args }}
{{- if not (hasPrefix "--" (first .)) }}{{ fail (printf "args: %q is not allowed; allowed: flags such as --lease-seconds=30" (first .)) }}{{ end }}
{{- end }}
{{- $spreads := list }}
{{- range .Values.topologySpreadConstraints }}
{{- $spread := printf "%s, %s" .topologyKey .whenUnsatisfiable }}
{{- if has $spread $spreads }}{{ fail (printf "topologySpreadConstraints: %s is there twice" $spread) }}{{ end }}
{{- $spreads = append $spreads $spread }}
{{- end }}
{{- end -}}
