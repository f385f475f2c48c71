"""Callers that concurrently request a decision under one id, from different deciders."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

from belated.core.events import Decision, Event, Opaque
from belated.core.times import as_microseconds
from tests.faults.service_load import BROKEN, GIVE_UP, Load

_ROWS = [[1.0, 0.0], [0.0, 1.0], [0.5, 0.5], [-1.0, 0.3]]
#: Races that are under way at a time.
AT_ONCE = 12

#: What must not differ between two answers under one id: action, time, propensity.
Told = tuple[int, int, float]


class Races(Load):
    """Races for ids, a few concurrently, in a sequence.

    In a race three callers request the same ids: one, or three that each caller requests in its
    own order, one by one or in one request. Some claim that it is their first attempt. A caller
    without a response retries at the next decider.

    Args:
        ports: of the deciders.

    Attributes:
        told: the responses that callers got under each id, without duplicates.
        retries: attempts that got no response.
    """

    def __init__(self, *ports: int) -> None:
        super().__init__(*ports)
        self.told: dict[str, list[Told]] = defaultdict(list)
        self.retries = 0

    @property
    def goes_on(self) -> bool:
        """Return whether no caller has received an unexpected error."""
        return self._thread.is_alive()

    async def _run(self) -> None:
        number, tasks = 0, set[asyncio.Task[None]]()
        while not self._stopped.is_set():
            width = 1 if number % 4 else 3
            names = [f"race-{n}" for n in range(number, number + width)]
            tasks.add(asyncio.create_task(self._race(names)))
            number += width
            if len(tasks) >= AT_ONCE:
                finished, tasks = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
                for task in finished:
                    task.result()
        await asyncio.gather(*tasks)
        for port in self._ports:
            self._hang_up(port)

    async def _race(self, names: list[str]) -> None:
        start = self._rng.randrange(3)
        callers = [self._call(start + n, names, self._rng.random()) for n in range(3)]
        await asyncio.gather(*callers)

    async def _call(self, turn: int, names: list[str], kind: float) -> None:
        """Request all ids: one by one, or all at once."""
        order = self._rng.sample(names, len(names))
        is_first = self._rng.random() < 0.5
        if kind < 0.5:
            requests = [_request(id, is_first) for id in order]
            response = await self._decided(turn, "/batch", {"requests": requests})
            for decision in response["decisions"]:
                self._keep(decision)
        else:
            for id in order:
                self._keep(await self._decided(turn, "", _request(id, is_first)))

    async def _decided(self, turn: int, way: str, body: dict[str, Any]) -> dict[str, Any]:
        while True:
            try:
                request = self._send(turn, "POST", f"/v1/offers/decisions{way}", body)
                status, response = await asyncio.wait_for(request, GIVE_UP)
            except BROKEN:
                status, response = 0, {}
            if status not in (0, 503):
                assert status == 201, (status, response)
                return response
            self.retries += 1
            turn += 1
            await asyncio.sleep(0.05)

    def _keep(self, found: Mapping[str, Any]) -> None:
        at = as_microseconds(found["at"])
        self.told[found["id"]].append((found["action"], at, found["propensity"]))


def _request(id: str, first_attempt: bool) -> dict[str, Any]:
    return {"rows": _ROWS, "id": id, "first_attempt": first_attempt}


def assert_one_answer_each(told: Mapping[str, list[Told]], events: Iterable[Event | Opaque]) -> str:
    """Assert that all responses for an id are equal, and the journal has it once.

    Returns:
        The result, in a line.
    """
    conflicts = {id: set(replies) for id, replies in told.items() if len(set(replies)) > 1}
    examples = dict(list(conflicts.items())[:3])
    assert not conflicts, f"{len(conflicts)} of {len(told)} ids have several answers: {examples}"
    decisions: dict[str, list[Told]] = defaultdict(list)
    for event in events:
        if isinstance(event, Decision):
            assert isinstance(event.action, int)
            decisions[event.id].append((event.action, event.at_us, event.propensity))
    duplicates = [id for id, decisions_of_id in decisions.items() if len(decisions_of_id) > 1]
    assert not duplicates, f"{len(duplicates)} of {len(decisions)} ids have several decisions"
    assert {id: replies[:1] for id, replies in told.items()} == {id: decisions[id] for id in told}
    n_contested = sum(len(replies) > 1 for replies in told.values())
    answers = sum(map(len, told.values()))
    return f"{len(told)} ids, {n_contested} contested, {answers} answers, one decision each"
