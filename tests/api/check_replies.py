#!/usr/bin/env python3
"""Checks replies of the API against its OpenAPI document, with somebody else's JSON Schema.

Standard input: {"document": …, "replies": [{"method", "path", "status", "body"}]}.
Every reply must fit the schema that the document has for it, and hold nothing that the schema does not name.
"""

import copy
import json
import sys

from jsonschema import Draft202012Validator


def strict(schema, inside=False):
    """The same schema that also refuses what it does not name."""
    if isinstance(schema, list):
        return [strict(part, inside) for part in schema]
    if not isinstance(schema, dict):
        return schema
    made = {}
    for key, value in schema.items():
        if key == "properties":
            made[key] = {name: strict(part) for name, part in value.items()}
        else:
            made[key] = strict(value, inside or key == "allOf")
    if "allOf" in schema:
        made["unevaluatedProperties"] = False
    elif "properties" in schema and not inside and "additionalProperties" not in schema:
        made["additionalProperties"] = False
    return made


def main():
    given = json.load(sys.stdin)
    document = given["document"]
    loose = copy.deepcopy(document["components"]["schemas"])
    for name, schema in loose.items():
        Draft202012Validator.check_schema(schema)
    # What is part of another by allOf may be followed by more.
    parts = set()

    def collect(value, inside):
        if isinstance(value, dict):
            if inside and "$ref" in value:
                parts.add(value["$ref"].rsplit("/", 1)[1])
            for key, part in value.items():
                collect(part, key == "allOf" or (inside and key not in ("properties", "items")))
        elif isinstance(value, list):
            for part in value:
                collect(part, inside)

    collect(loose, False)
    schemas = {name: schema if name in parts else strict(schema) for name, schema in loose.items()}
    checked = set()
    wrong = 0
    for reply in given["replies"]:
        route = reply["path"].split("?")[0]
        operation = document["paths"].get(route, {}).get(reply["method"].lower())
        if operation is None:
            # A path that is not there: only the form of failures is known.
            content = {"application/json": {"schema": {"$ref": "#/components/schemas/ErrorReport"}}}
        else:
            responses = operation["responses"]
            content = responses.get(str(reply["status"]), responses.get("default"))["content"]
        kind = reply["type"].split(";")[0]
        declared = {name.split(";")[0]: part for name, part in content.items()}
        if kind not in declared:
            print(f"{reply['method']} {reply['path']}: {kind} is not in {sorted(declared)}")
            wrong += 1
            continue
        body = json.loads(reply["body"]) if kind == "application/json" else reply["body"]
        schema = {"components": {"schemas": schemas}, **strict(declared[kind]["schema"])}
        Draft202012Validator.check_schema(schema)
        for error in Draft202012Validator(schema).iter_errors(body):
            wrong += 1
            place = "/".join(str(part) for part in error.absolute_path)
            print(f"{reply['method']} {reply['path']} {reply['status']}: at {place or '/'}: {error.message[:500]}")
        checked.add((reply["method"], route, reply["status"]))
    print(f"{len(checked)} kinds of replies checked, {wrong} mistakes")
    sys.exit(1 if wrong else 0)


main()
