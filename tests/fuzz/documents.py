"""The OpenAPI document as it is for one bandit: the width of its rows, or the names it reads.

The service's own document is for all bandits, so that nearly all that is made from it is refused at
the same place. What is made from these comes further.
"""

from __future__ import annotations

from typing import Any

from belated.inputs import MAX_ENTRY

#: The largest number that becomes 1e8 as a float32, and the next whole number does not.
_LARGEST = MAX_ENTRY + 4
_NUMBER = {"type": "number", "minimum": -_LARGEST, "maximum": _LARGEST}
_NOTHING = {"type": "null"}


def for_rows(document: dict[str, Any], bandit: str, dim: int) -> dict[str, Any]:
    """For a bandit that takes rows, and rewards from 0 to 1."""
    schemas = document["components"]["schemas"]
    row = {"type": "array", "items": _NUMBER, "minItems": dim, "maxItems": dim}
    offer = schemas["Offer"]["properties"]
    offer["rows"] = {"type": "array", "items": row, "minItems": 1}
    offer["dim"] = {"enum": [dim, None]}
    offer["context"] = _NOTHING
    schemas["Offer"]["required"] = ["rows"]
    for name in ("RewardBody", "NamedReward"):
        schemas[name]["properties"]["value"] = {"type": "number", "minimum": 0, "maximum": 1}
    return _of_bandit(document, bandit)


def for_features(document: dict[str, Any], bandit: str) -> dict[str, Any]:
    """For a bandit that reads an age from the context, and a price from each action."""
    schema = document["components"]["schemas"]["Offer"]
    offer = schema["properties"]
    offer["rows"] = offer["dim"] = _NOTHING
    offer["context"] = _record("age")
    offer["actions"] = {
        "type": "object",
        "additionalProperties": _record("price"),
        "minProperties": 1,
    }
    schema["required"] = ["context", "actions"]
    return _of_bandit(document, bandit)


def _record(name: str) -> dict[str, Any]:
    number = {**_NUMBER, "type": ["number", "boolean"]}
    return {"type": "object", "properties": {name: number}, "required": [name]}


def _of_bandit(document: dict[str, Any], bandit: str) -> dict[str, Any]:
    del document["paths"]["/v1/{bandit}/mode"]  # switched off, it would refuse all the rest
    for operations in document["paths"].values():
        for operation in operations.values():
            for parameter in operation.get("parameters", []):
                if parameter["name"] == "bandit":
                    parameter["schema"] = {"enum": [bandit]}
    return document
