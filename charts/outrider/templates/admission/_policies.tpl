{{/* Name of a policy and of its binding, which are in no namespace: the release's is part of it. */}}
{{- define "outrider.policyName" -}}
{{- printf "%s.%s.%s" .policy (include "outrider.name" .root) .root.Release.Namespace -}}
{{- end -}}

{{/* Services, as they are made and changed. */}}
{{- define "outrider.policyMatch" -}}
resourceRules:
  - apiGroups: [outrider.dev]
    apiVersions: [v1alpha1]
    operations: [CREATE, UPDATE]
    resources: [speculativeservices]
{{- end -}}

{{/* A binding: .policy, .action, and .root, whose namespaces are those that the operator manages. */}}
{{- define "outrider.policyBinding" -}}
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata:
  name: {{ include "outrider.policyName" . }}
  labels: {{- include "outrider.labels" .root | nindent 4 }}
spec:
  policyName: {{ include "outrider.policyName" . }}
  validationActions: [{{ .action }}]
  {{- with .root.Values.namespaces }}
  matchResources:
    namespaceSelector:
      matchExpressions:
        - {key: kubernetes.io/metadata.name, operator: In, values: {{ toJson . }}}
  {{- end }}
{{- end -}}

{{/* Validations of the rules on privileges that are not allowed to everybody: .rules, .values. */}}
{{- define "outrider.privileges" -}}
{{- $end := ternary "only for whoever may make pods in this namespace" "not for services here" .values.trustPodCreators }}
{{- $values := .values }}
{{- range $name, $rule := .rules }}
{{- if not (has $name $values.allowed) }}
- expression: {{ $rule.expression | quote }}
  message: {{ printf "%s: %s (rule %s)" $rule.message $end $name | quote }}
  reason: Forbidden
{{- end }}
{{- end }}
{{- end -}}
