{{- define "belated.labels" -}}
app.kubernetes.io/name: belated
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "belated.image" -}}
{{- if .Values.image.digest -}}
{{ .Values.image.repository }}@{{ .Values.image.digest }}
{{- else -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end -}}
{{- end }}

{{/* Every pod runs without root privileges, and can write only to its spool. */}}
{{- define "belated.pod" -}}
automountServiceAccountToken: false
securityContext:
  runAsNonRoot: true
  runAsUser: 10001
  runAsGroup: 10001
  fsGroup: 10001
  seccompProfile: {type: RuntimeDefault}
{{- end }}

{{- define "belated.container" -}}
image: {{ include "belated.image" . | quote }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
envFrom:
  - secretRef: {name: {{ .Values.secret | quote }}}
securityContext:
  readOnlyRootFilesystem: true
  allowPrivilegeEscalation: false
  capabilities: {drop: [ALL]}
{{- end }}

{{- define "belated.config-volume" -}}
- name: config
  configMap: {name: {{ .Release.Name }}-config}
{{- end }}

{{/* A changed configuration restarts the pods. */}}
{{- define "belated.checksum" -}}
checksum/config: {{ .Values.config | sha256sum }}
{{- end }}
