{{- define "anabranch.name" -}}
{{- if contains "anabranch" .Release.Name -}}
{{- .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-anabranch" .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{/* Labels that select the pods of a component: (list $ "service"). */}}
{{- define "anabranch.selector" -}}
{{- $root := index . 0 -}}
app.kubernetes.io/name: anabranch
app.kubernetes.io/instance: {{ $root.Release.Name }}
app.kubernetes.io/component: {{ index . 1 }}
{{- end -}}

{{- define "anabranch.labels" -}}
{{ include "anabranch.selector" . }}
app.kubernetes.io/version: {{ (index . 0).Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ (index . 0).Release.Service }}
helm.sh/chart: anabranch-{{ (index . 0).Chart.Version }}
{{- end -}}

{{/* What pods of our images may do. */}}
{{- define "anabranch.podSecurity" -}}
runAsNonRoot: true
runAsUser: 10001
runAsGroup: 0
fsGroup: 10001
seccompProfile: {type: RuntimeDefault}
{{- end -}}

{{- define "anabranch.containerSecurity" -}}
allowPrivilegeEscalation: false
capabilities: {drop: [ALL]}
{{- end -}}

{{/* Variables that service and runtime share. */}}
{{- define "anabranch.env" -}}
{{- $name := include "anabranch.name" . -}}
{{- if .Values.redis.enabled }}
- name: REDIS_PASSWORD
  valueFrom: {secretKeyRef: {name: {{ .Values.redis.passwordSecret }}, key: password}}
- name: ANABRANCH_REDIS_URL
  value: redis://:$(REDIS_PASSWORD)@{{ $name }}-redis.{{ .Release.Namespace }}.svc:6379/0
{{- else }}
- name: ANABRANCH_REDIS_URL
  valueFrom: {secretKeyRef: {name: {{ .Values.redis.externalSecret }}, key: redis-url}}
{{- end }}
- name: ANABRANCH_NAMESPACE
  value: {{ .Values.namespace | quote }}
- name: ANABRANCH_EPOCH_BATCHES
  value: {{ .Values.epochBatches | quote }}
{{- $paths := .Values.access.paths }}
{{- if .Values.input.existingClaim }}
{{- $paths = append $paths .Values.input.mountPath }}
{{- end }}
{{- with $paths }}
- name: ANABRANCH_ALLOW_PATH
  value: {{ join ":" . | quote }}
{{- end }}
{{- with .Values.access.hosts }}
- name: ANABRANCH_ALLOW_HOST
  value: {{ join "," . | quote }}
{{- end }}
{{- with .Values.access.formats }}
- name: ANABRANCH_ALLOW_FORMAT
  value: {{ join "," . | quote }}
{{- end }}
{{- end -}}

{{/* Directory of the results, in all pods: the runtime reports it to the service. */}}
{{- define "anabranch.results" -}}
/data/results
{{- end -}}

{{- define "anabranch.pullSecrets" -}}
{{- with .Values.image.pullSecrets }}
imagePullSecrets:
  {{- range . }}
  - name: {{ . }}
  {{- end }}
{{- end }}
{{- end -}}

{{/* Settings of Spark, one in each line. */}}
{{- define "anabranch.sparkConf" -}}
{{- $name := include "anabranch.name" . -}}
{{- $ports := .Values.runtime.ports -}}
{{- $executors := .Values.executors -}}
{{- $conf := dict
  "spark.driver.host" (printf "$(POD_NAME).%s-driver.%s.svc" $name .Release.Namespace)
  "spark.driver.bindAddress" "0.0.0.0"
  "spark.driver.port" $ports.driver
  "spark.driver.blockManager.port" $ports.blockManager
  "spark.driver.memory" .Values.runtime.javaMemory
  "spark.dynamicAllocation.enabled" "false"
  "spark.executor.instances" $executors.instances
  "spark.executor.cores" $executors.cores
  "spark.executor.memory" $executors.javaMemory
  "spark.executor.memoryOverhead" $executors.otherMemory
  "spark.kubernetes.namespace" .Release.Namespace
  "spark.kubernetes.container.image" .Values.image.runtime
  "spark.kubernetes.container.image.pullPolicy" .Values.image.pullPolicy
  "spark.kubernetes.driver.pod.name" "$(POD_NAME)"
  "spark.kubernetes.authenticate.executor.serviceAccountName" (printf "%s-executor" $name)
  "spark.kubernetes.executor.podTemplateFile" "/etc/anabranch/executor.yaml"
-}}
{{- with .Values.image.pullSecrets -}}
{{- $_ := set $conf "spark.kubernetes.container.image.pullSecrets" (join "," .) -}}
{{- end -}}
{{- with $executors.cache -}}
{{- $kind := ternary "persistentVolumeClaim" "emptyDir" (ne .className "") -}}
{{- $volume := printf "spark.kubernetes.executor.volumes.%s.cache" $kind -}}
{{- $_ := set $conf (printf "%s.mount.path" $volume) "/cache" -}}
{{- $_ := set $conf (printf "%s.options.sizeLimit" $volume) .size -}}
{{- if .className -}}
{{- $_ := set $conf (printf "%s.options.claimName" $volume) "OnDemand" -}}
{{- $_ := set $conf (printf "%s.options.storageClass" $volume) .className -}}
{{- end -}}
{{- end -}}
{{- with .Values.input.existingClaim -}}
{{- $volume := "spark.kubernetes.executor.volumes.persistentVolumeClaim.input" -}}
{{- $_ := set $conf (printf "%s.options.claimName" $volume) . -}}
{{- $_ := set $conf (printf "%s.mount.path" $volume) $.Values.input.mountPath -}}
{{- $_ := set $conf (printf "%s.mount.readOnly" $volume) "true" -}}
{{- end -}}
{{- with .Values.objectStore.credentialsSecret -}}
{{- range $.Values.objectStore.credentialsKeys -}}
{{- $_ := set $conf (printf "spark.kubernetes.executor.secretKeyRef.%s" .) (printf "%s:%s" $.Values.objectStore.credentialsSecret .) -}}
{{- end -}}
{{- end -}}
{{- range $key, $value := mergeOverwrite $conf .Values.runtime.sparkConf }}
{{ $key }}={{ $value }}
{{- end -}}
{{- end -}}
