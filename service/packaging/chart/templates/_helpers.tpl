{{- define "labels" -}}
{app.kubernetes.io/name: tollgate, app.kubernetes.io/instance: {{ .Release.Name }}}
{{- end }}
