# Prometheus' text format on stdin, by the Python client's parser: every sample, as
# [name, labels, value].
import json, sys
from prometheus_client.parser import text_string_to_metric_families

families = list(text_string_to_metric_families(sys.stdin.read()))
samples = [(sample.name, sample.labels, sample.value) for family in families for sample in family.samples]
typed = {family.name: family.type for family in families}
print(json.dumps({"samples": samples, "types": typed, "help": all(family.documentation for family in families)}))
