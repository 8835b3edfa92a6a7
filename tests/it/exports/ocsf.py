# OCSF events on stdin, one a line, each held against the schema of its class and
# version as the package ships it. Prints the number of each class.
import collections, json, re, sys
import fastjsonschema
from ocsf_json_schema import OcsfJsonSchemaEmbedded, get_ocsf_schema


def usable(node):
    # The validator writes `$` as `\Z`, which a set of characters cannot hold.
    if isinstance(node, list):
        return [usable(each) for each in node]
    if not isinstance(node, dict):
        return node
    try:
        re.compile(str(node.get("pattern", "")).replace("$", r"\Z"))
    except re.error:
        node = {key: value for key, value in node.items() if key != "pattern"}
    return {key: usable(value) for key, value in node.items()}


CLASSES = {4001: "network_activity", 4003: "dns_activity"}
validators, seen = {}, collections.Counter()
for line in sys.stdin:
    event = json.loads(line)
    version, profiles = event["metadata"]["version"], event["metadata"]["profiles"]
    key = (version, event["class_uid"])
    if key not in validators:
        schema = OcsfJsonSchemaEmbedded(get_ocsf_schema(version))
        of_class = schema.get_class_schema(CLASSES[event["class_uid"]], profiles)
        # fastjsonschema knows Draft 7; what is used of 2020-12 here is the same.
        of_class["$schema"] = "http://json-schema.org/draft-07/schema#"
        of_class["definitions"] = of_class.pop("$defs")
        text = json.dumps(of_class).replace("#/$defs/", "#/definitions/")
        of_class = usable(json.loads(text))
        of_class.pop("$id", None)
        validators[key] = fastjsonschema.compile(of_class)
    validators[key](event)
    assert event["type_uid"] == event["class_uid"] * 100 + event["activity_id"], line
    seen[str(event["class_uid"])] += 1
print(json.dumps(seen))
