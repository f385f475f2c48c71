"""The OpenAPI document as it is for one bandit: the width of its rows, or the names it reads.

The service's own document is for all bandits, so that nearly all that is made from it is refused at
the same place. What is made from these comes further. Half of all texts in it have a canary.
"""

from __future__ import annotations

from typing import Any

from belated.core.inputs import MAX_ENTRY

#: Stands in ids, parts, tokens, names, contexts and reasons: it must turn up nowhere else.
CANARY = "canary7f3a"

#: The largest number that becomes 1e8 as a float32, and the next whole number does not.
_LARGEST = MAX_ENTRY + 4
_NUMBER = {"type": "number", "minimum": -_LARGEST, "maximum": _LARGEST}
_NOTHING = {"type": "null"}
_MARKED = {"type": "string", "pattern": f"^{CANARY}[a-z0-9]{{0,9}}$"}


def for_rows(document: dict[str, Any], bandit: str, switched: str, dim: int) -> dict[str, Any]:
    """For a bandit that takes rows, and rewards from 0 to 1; and for another that is switched."""
    schemas = document["components"]["schemas"]
    row = {"type": "array", "items": _NUMBER, "minItems": dim, "maxItems": dim}
    properties = schemas["DecisionRequest"]["properties"]
    properties["rows"] = {"type": "array", "items": row, "minItems": 1}
    properties["dim"] = {"enum": [dim, None]}
    properties["context"] = _NOTHING
    schemas["DecisionRequest"]["required"] = ["rows"]
    schemas["EvaluationRequest"]["properties"]["context"] = _often({})
    for name in ("RewardBody", "NamedReward", "SubjectRewardBody"):
        schemas[name]["properties"]["value"] = {"type": "number", "minimum": 0, "maximum": 1}
    return _of_bandits(document, bandit, switched)


def for_features(document: dict[str, Any], bandit: str, switched: str) -> dict[str, Any]:
    """For a bandit that reads an age from the context, and a price from each action."""
    schema = document["components"]["schemas"]["DecisionRequest"]
    properties = schema["properties"]
    properties["rows"] = properties["dim"] = _NOTHING
    properties["context"] = _record("age")
    properties["actions"] = {
        "type": "object",
        "propertyNames": {"type": "string", "maxLength": 128},
        "additionalProperties": _record("price"),
        "minProperties": 1,
    }
    schema["required"] = ["context", "actions"]
    flag = {"age": _NUMBER, "actions": properties["actions"]}
    document["components"]["schemas"]["EvaluationRequest"]["properties"]["context"] = _often(flag)
    return _of_bandits(document, bandit, switched)


def _often(properties: dict[str, Any]) -> dict[str, Any]:
    """Any context of an evaluation, and half of the time one with a user and these properties."""
    properties = {"targetingKey": {"type": "string", "minLength": 1}, **properties}
    complete = {"type": "object", "properties": properties, "required": list(properties)}
    return {"anyOf": [complete, {"type": "object"}]}


def _record(name: str) -> dict[str, Any]:
    number = {**_NUMBER, "type": ["number", "boolean"]}
    return {
        "type": "object",
        "properties": {name: number, CANARY: {}},
        "required": [name],
    }


def _of_bandits(document: dict[str, Any], bandit: str, switched: str) -> dict[str, Any]:
    for path, operations in document["paths"].items():
        # What is switched off, or paused, refuses to decide: that is another bandit.
        name = switched if path.endswith(("/mode", "/actions")) else bandit
        for operation in operations.values():
            for parameter in operation.get("parameters", []):
                if parameter["name"] == "bandit":
                    parameter["schema"] = {"enum": [name]}
                else:
                    parameter["schema"] = _marked(parameter["schema"])
    schemas = document["components"]["schemas"]
    for schema_name in ("DecisionRequest", "RewardBody", "NamedReward", "ModeBody", "ActionBody"):
        schemas[schema_name]["properties"] = _marked(schemas[schema_name]["properties"])
    return document


def _marked(schema: Any) -> Any:
    """A schema in which every text may have the canary, too."""
    if isinstance(schema, list):
        return [_marked(element) for element in schema]
    if not isinstance(schema, dict):
        return schema
    if schema.get("type") == "string" and schema.get("format") != "date-time":
        return {"anyOf": [schema, _MARKED]}
    return {name: _marked(item) for name, item in schema.items()}
