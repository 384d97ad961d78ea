{{- /* Copyright 2026 The KV Compress Authors. SPDX-License-Identifier: Apache-2.0 */ -}}
{{- define "kvcompress.registry" -}}
{{ with .Values.image.registry }}{{ . | trimSuffix "/" }}/{{ end }}
{{- end }}
{{- define "kvcompress.image" -}}
{{ include "kvcompress.registry" . }}{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end }}
{{- /* Of a pod: secrets of the registry, and which nodes it may run on. */ -}}
{{- define "kvcompress.placement" -}}
{{- with .root.Values.image.pullSecrets }}
imagePullSecrets:
  {{- range . }}
  - name: {{ . }}
  {{- end }}
{{- end }}
{{- with .values.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .values.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}
{{- /* Of a quantity of memory, such as 3Gi: its MiB, rounded down. */ -}}
{{- define "kvcompress.mebibytes" -}}
{{- $units := dict "" 1 "K" 1e3 "M" 1e6 "G" 1e9 "T" 1e12 "Ki" 1024 "Mi" 1048576 "Gi" 1073741824 "Ti" 1099511627776 -}}
{{- $unit := regexFind "[KMGT]i?$" (toString .) -}}
{{- divf (mulf (trimSuffix $unit (toString .)) (get $units $unit)) 1048576 | floor | int64 -}}
{{- end }}
{{- /* The memory of a server, of which a stream of the smallest kind must fit. */ -}}
{{- define "kvcompress.memory" -}}
{{- if lt (include "kvcompress.mebibytes" .memory | int64) 128 -}}
{{- fail (printf "%s.memory is %s: a server needs 128Mi or more, 64Mi for itself and twice its streams (docs/guides/sizing.md)" .name (toString .memory)) -}}
{{- end -}}
{{ .memory }}
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
{{- /* The kubelet's gRPC probes speak no TLS. */ -}}
{{- define "kvcompress.ready" -}}
{{- if .Values.pool.tls.enabled -}}
httpGet:
  path: /healthz
  port: metrics
{{- else -}}
grpc:
  port: 50051
{{- end }}
{{- end }}
