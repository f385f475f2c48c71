"""What the bandits of one decider process have in common."""

from __future__ import annotations

import asyncio
from concurrent.futures import Executor
from dataclasses import dataclass

from belated.journals.sessions import StoreSession
from belated.journals.spool.line import Line
from belated.service.runtime import Runtime
from belated.service.serving.group_commit import GroupCommit
from belated.service.serving.spools import Spools


@dataclass(frozen=True)
class Shared:
    """Handed to each of them.

    Attributes:
        loop: of the requests.
        runtime: time and threads.
        commits: makes events durable.
        reward_commits: makes rewards durable; another one where each partition that a commit falls
            on costs something.
        writing: opens the journals that are committed to.
        rewarding: opens those that rewards are committed to.
        reading: opens those that look-ups read, so that none waits for a commit.
        threads: in which look-ups read.
        spools: where events wait while the store is unavailable; None to refuse them then.
        line: of the spools.
    """

    loop: asyncio.AbstractEventLoop
    runtime: Runtime
    commits: GroupCommit
    reward_commits: GroupCommit
    writing: StoreSession
    rewarding: StoreSession
    reading: StoreSession
    threads: Executor
    spools: Spools | None
    line: Line | None
