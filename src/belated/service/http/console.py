"""What the console asks for: its page, how all bandits stand, and the report of one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from belated.service.console.page import console_page
from belated.service.console.reports import BanditReport
from belated.service.serving.served_bandit import MAX_MODEL_AGE
from belated.wire.answers import Answer

if TYPE_CHECKING:
    from belated.service.http.app import Service
    from belated.service.http.exchange import Exchange


class BanditHealth(Answer, frozen=True):
    """How it stands with a bandit at this decider.

    Attributes:
        bandit: its name.
        mode: how it decides.
        stale: whether its model is too old.
        model_age_seconds: age of the model; null before the first one.
        observations: rewards that the model knows.
        pending: decisions without a reward.
        decisions: made by this process.
        rewards: taken by this process.
    """

    bandit: str
    mode: str
    stale: bool
    model_age_seconds: float | None
    observations: int
    pending: int
    decisions: int
    rewards: int


class Bandits(Answer, frozen=True):
    """All bandits of this service.

    Attributes:
        bandits: by name.
    """

    bandits: list[BanditHealth]


class ReportPage(Answer, frozen=True):
    """The report of a bandit, for the console.

    Attributes:
        status: ready; computing: ask again in a few seconds; unavailable: there is none.
        why: there is none, or no newer one; empty otherwise.
        page: its HTML and its charts, null before the first.
    """

    status: str
    why: str
    page: Any


def page(service: Service) -> tuple[int, bytes]:
    """The page itself."""
    return 200, console_page()


def bandits(service: Service) -> tuple[int, bytes]:
    """How all bandits stand at this decider."""
    found = []
    for name in sorted(service.bandits):
        one = service.bandits[name]
        found.append(
            BanditHealth(
                bandit=name,
                mode=one.decider.mode,
                stale=one.is_stale(MAX_MODEL_AGE),
                model_age_seconds=one.age,
                observations=one.decider.model.n,
                pending=one.decider.model.pending,
                decisions=one.stats.decisions,
                rewards=one.stats.rewards,
            )
        )
    return 200, msgspec.json.encode(Bandits(found))


def report(call: Exchange, _: None) -> None:
    """Ask for the report of a bandit."""
    found = call.bandit.report_page
    call.settle((found, None if found is None else found.look()))


def reported(call: Exchange, found: tuple[BanditReport | None, bytes | None]) -> ReportPage:
    """The report, or why there is none."""
    maker, made = found
    why = "" if maker is None else maker.error
    if made is not None:
        return ReportPage("ready", why, msgspec.Raw(made))
    return ReportPage("unavailable" if why else "computing", why, None)
