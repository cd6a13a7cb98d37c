{{/* What the operator may do in the namespaces that it manages. A test compares this with what it does. */}}
{{- define "outrider.rules" -}}
- apiGroups: [outrider.dev]
  resources: [speculativeservices]
  verbs: [list, watch]
- apiGroups: [outrider.dev]
  resources: [speculativeservices/status, speculativerolescalers/status]
  verbs: [patch]
# Owner references that block deletion, where the cluster guards them (OwnerReferencesPermissionEnforcement).
- apiGroups: [outrider.dev]
  resources: [speculativeservices/finalizers]
  verbs: [update]
# What a service owns. A server-side apply of something new asks for create and patch; get finds out
# first whether somebody else has its name.
- apiGroups: [outrider.dev]
  resources: [speculativerolescalers]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [""]
  resources: [configmaps, services, persistentvolumeclaims]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [""]
  resources: [serviceaccounts] # each goes with its service, never before
  verbs: [get, list, watch, create, patch]
- apiGroups: [apps]
  resources: [deployments]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [apps]
  resources: [replicasets, statefulsets] # whose a pod is: anybody's may carry a service's labels
  verbs: [get]
- apiGroups: [leaderworkerset.x-k8s.io]
  resources: [leaderworkersets]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [policy]
  resources: [poddisruptionbudgets]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [networking.k8s.io]
  resources: [networkpolicies]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [inference.networking.k8s.io]
  resources: [inferencepools]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [monitoring.coreos.com]
  resources: [podmonitors]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [""]
  resources: [pods] # patched: the order in which they go when their number shrinks
  verbs: [list, watch, patch]
{{- $signs := and .Values.certificates.enabled (not .Values.certificates.issuerRef.name) }}
{{- if and .Values.certificates.enabled (not $signs) }}
- apiGroups: [cert-manager.io]
  resources: [certificates] # cert-manager writes their Secrets, which the operator need not see
  verbs: [get, list, watch, create, patch, delete]
{{- end }}
{{- if $signs }}
# Certificates of services' pods, and the authorities beside the Lease, by their names: nobody lists
# Secrets. They go with their services.
- apiGroups: [""]
  resources: [secrets]
  verbs: [get, create, patch]
{{- end }}
- apiGroups: [events.k8s.io]
  resources: [events]
  verbs: [create]
- apiGroups: [coordination.k8s.io]
  resources: [leases]
  resourceNames: [{{ include "outrider.name" . }}]
  verbs: [list, watch]
# The claim of each namespace with services, so that no two operators manage one.
- apiGroups: [coordination.k8s.io]
  resources: [leases]
  verbs: [create]
- apiGroups: [coordination.k8s.io]
  resources: [leases]
  resourceNames: [outrider-claim]
  verbs: [get, update]
{{- end -}}

{{/* What a candidate for the Lease may do; a name cannot be asked of what is not there yet. */}}
{{- define "outrider.leaseRules" -}}
- apiGroups: [coordination.k8s.io]
  resources: [leases]
  verbs: [create]
- apiGroups: [coordination.k8s.io]
  resources: [leases]
  resourceNames: [{{ include "outrider.name" . }}]
  verbs: [get, update]
{{- end -}}
