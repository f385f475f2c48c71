"""Privileges on the PostgreSQL tables, by kind of process.

No process of a service updates or deletes records, and the roles of these processes do not allow
it. Trimming and overwriting require the maintainer role.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Literal, get_args

#: Kinds of processes. A program with an embedded bandit is both a decider and a learner.
Role = Literal["decider", "learner", "operator", "maintainer"]
ROLES: tuple[Role, ...] = get_args(Role)

#: UPDATE on `partition` is required to lock rows, which are never changed.
_APPENDS = {
    "record": ("INSERT",),
    "request": ("INSERT",),
    "partition": ("INSERT", "UPDATE"),
    "cell": ("INSERT", "UPDATE"),
}
#: Privileges by role and table, in addition to SELECT, which all roles have on all tables. API keys
#: are stored in cells; the how-to shows policies that restrict them to operators.
_RIGHTS: Mapping[Role, Mapping[str, tuple[str, ...]]] = {
    "decider": _APPENDS,
    "learner": {
        **_APPENDS,
        "cell": ("INSERT", "UPDATE", "DELETE"),
        "outcome": ("INSERT", "UPDATE"),
    },
    "operator": {**_APPENDS, "cell": ("INSERT", "UPDATE", "DELETE")},
    "maintainer": {
        "record": ("INSERT", "UPDATE", "DELETE"),
        "request": ("DELETE",),
        "partition": ("UPDATE",),
        "cell": ("INSERT", "UPDATE", "DELETE"),
        "outcome": ("DELETE",),
    },
}
_READ = ("cell", "migration", "outcome", "partition", "record", "request")


def rights_of(roles: Collection[Role]) -> list[tuple[str, str]]:
    """Return the privileges that these roles require, as pairs of table and privilege.

    >>> [right for table, right in rights_of(["decider", "learner"]) if table == "record"]
    ['INSERT', 'SELECT']
    """
    rights_needed = {(table, "SELECT") for table in _READ}
    for role in roles:
        rights_needed |= {
            (table, right) for table, rights in _RIGHTS[role].items() for right in rights
        }
    return sorted(rights_needed)
