{{- /* Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0 */ -}}
{{- define "kvcompress.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end }}
{{- define "kvcompress.selector" -}}
app.kubernetes.io/name: kvcompress
app.kubernetes.io/component: server
{{- end }}
{{- define "kvcompress.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
{{- end }}
{{- define "kvcompress.liveness" -}}
httpGet:
  path: /livez
  port: {{ . }}
periodSeconds: 10
timeoutSeconds: 3
{{- end }}
