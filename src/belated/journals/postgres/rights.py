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

#: UPDATE on a partition is what it takes to lock it: the rows are never changed. So it is with a
#: maintainer's on a snapshot.
_APPENDS = {
    "record": ("INSERT",),
    "request": ("INSERT",),
    "bandit": ("INSERT", "UPDATE"),
    "partition": ("INSERT", "UPDATE"),
    "snapshot": ("INSERT",),
}
#: By role and table, beside SELECT, which all have on all tables.
_RIGHTS: Mapping[Role, Mapping[str, tuple[str, ...]]] = {
    "decider": _APPENDS,
    "learner": {
        **_APPENDS,
        "snapshot": ("INSERT", "UPDATE"),
        "piece": ("INSERT", "DELETE"),
        "leader": ("INSERT", "UPDATE"),
        "model": ("INSERT", "UPDATE"),
        "worker": ("INSERT", "UPDATE", "DELETE"),
        "sums": ("INSERT", "UPDATE"),
    },
    "operator": {**_APPENDS, "key": ("INSERT", "UPDATE")},
    "maintainer": {
        "record": ("INSERT", "UPDATE", "DELETE"),
        "request": ("DELETE",),
        "partition": ("UPDATE",),
        "snapshot": ("UPDATE",),
        "base": ("INSERT", "UPDATE"),
        "base_piece": ("INSERT", "UPDATE", "DELETE"),
    },
}
_READ = ("bandit", "base", "base_piece", "key", "leader", "migration", "model", "partition",
         "piece", "record", "request", "snapshot", "sums", "worker")  # fmt: skip


def rights_of(roles: Collection[Role]) -> list[tuple[str, str]]:
    """Return each table with each right that a process of these kinds needs on it.

    >>> [right for table, right in rights_of(["decider", "learner"]) if table == "record"]
    ['INSERT', 'SELECT']
    """
    found = {(table, "SELECT") for table in _READ}
    for role in roles:
        found |= {(table, right) for table, rights in _RIGHTS[role].items() for right in rights}
    return sorted(found)
