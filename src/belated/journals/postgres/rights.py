"""What a role of PostgreSQL must be allowed to do, by the process that connects with it.

No process of a service changes or removes a record: a role that may not cannot be made to. It takes
a maintainer to trim a journal or to overwrite what was erased.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Literal, get_args

#: Kinds of process. A program that holds a bandit decides and learns.
Role = Literal["decider", "learner", "operator", "maintainer"]
ROLES: tuple[Role, ...] = get_args(Role)

#: UPDATE on a partition is what it takes to lock it: the rows are never changed.
_APPENDS = {
    "record": ("INSERT",),
    "request": ("INSERT",),
    "partition": ("INSERT", "UPDATE"),
    "cell": ("INSERT", "UPDATE"),
}
#: By role and table, beside SELECT, which all have on all tables. All that is stored beside records
#: is in cells; the how-to has policies that keep API keys to operators.
_RIGHTS: Mapping[Role, Mapping[str, tuple[str, ...]]] = {
    "decider": _APPENDS,
    "learner": {**_APPENDS, "cell": ("INSERT", "UPDATE", "DELETE")},
    "operator": {**_APPENDS, "cell": ("INSERT", "UPDATE", "DELETE")},
    "maintainer": {
        "record": ("INSERT", "UPDATE", "DELETE"),
        "request": ("DELETE",),
        "partition": ("UPDATE",),
        "cell": ("INSERT", "UPDATE", "DELETE"),
    },
}
_READ = ("cell", "migration", "partition", "record", "request")


def rights_of(roles: Collection[Role]) -> list[tuple[str, str]]:
    """Return each table with each right that a process of these kinds needs on it.

    >>> [right for table, right in rights_of(["decider", "learner"]) if table == "record"]
    ['INSERT', 'SELECT']
    """
    found = {(table, "SELECT") for table in _READ}
    for role in roles:
        found |= {(table, right) for table, rights in _RIGHTS[role].items() for right in rights}
    return sorted(found)
