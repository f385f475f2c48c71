"""The tests that send whatever the OpenAPI document allows, and whatever it forbids."""

collect_ignore = ["checks.py"]  # schemathesis loads it, in a process of its own
