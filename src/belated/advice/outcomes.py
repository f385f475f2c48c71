"""Which rewards are reported: of all outcomes, of the good ones only, of none, or again and again.

Whether a reward is late or will never come is told by the delays that were seen: see
:attr:`Evidence.patience <belated.advice.evidence.Evidence.patience>`.
"""

from __future__ import annotations

from belated.advice.evidence import FEW, NONE, Evidence

#: Decisions that are old enough, before it counts that most of them have no reward: if all rewards
#: are alike, and if they are not.
OLD, OLD_MIXED = 50, 250
#: Decisions without any reward, where every outcome is reported, and where only some are.
SILENT, SILENT_DEFAULTS = 1_000, 5_000
#: Rewards that were to be expected, and none has come: chance would be e⁻²⁰.
EXPECTED = 20.0
#: Events of which a third are duplicates.
MANY = 100


def alike(seen: Evidence) -> str | None:
    """All rewards are alike, and most decisions that are old enough have none.

    Where a missing reward has a meaning this is as it should be.
    """
    found = _missing(seen, OLD)
    if found is None or seen.defaults or not _are_alike(seen):
        return None
    value = seen.value[seen.rewarded][0]
    missing, old = found
    return (
        f"all rewards so far are {value:g}, and {missing} of {old} decisions older than "
        f"{seen.time(seen.patience)} have none: is only one outcome reported? Then nothing is"
        " learned of the other. Use rewards=ConversionsOnly(window), or report both outcomes"
    )


def missing(seen: Evidence) -> str | None:
    """Most decisions that are old enough have no reward, and are waited for for ever."""
    found = _missing(seen, OLD_MIXED)
    if found is None or seen.window is not None or _are_alike(seen):
        return None
    return (
        f"{seen.pending} of {seen.decisions} decisions are still without a reward, and most of"
        f" those older than {seen.time(seen.patience)} too. They count as explored for ever: set a"
        " window, as Explicit(window), after which they do not"
    )


def _missing(seen: Evidence, least: int) -> tuple[int, int] | None:
    """How many have no reward, of how many that are old enough; None if that is not most."""
    old = int(seen.old.sum())
    without = int((seen.old & ~seen.rewarded).sum())
    return (without, old) if old >= least and without > 0.5 * old else None


def _are_alike(seen: Evidence) -> bool:
    values = seen.value[seen.rewarded]
    return len(values) >= FEW and bool((values == values[0]).all())


def silence(seen: Evidence) -> str | None:
    """No reward comes: none ever has, or none since a while in which some should have.

    Nothing is known of delays before the first reward. So all that is said then is that there are
    many decisions, and that their windows have ended if they have one.
    """
    if seen.latest == NONE:
        return _never(seen)
    due = seen.made <= seen.now - seen.patience
    before = due & (seen.made <= seen.latest)
    if before.sum() < OLD:
        return None
    share = float(seen.rewarded[before].mean())
    weight = seen.decisions / max(len(seen.made), 1)
    since = weight * float((due & (seen.made > seen.latest)).sum())
    if share * since < EXPECTED:
        return None
    return (
        f"no reward has come for {seen.time(seen.now - seen.latest)}: of {since:.0f} decisions made"
        f" since and older than {seen.time(seen.patience)}, about {share * since:.0f} should have"
        f" one by now. Is whatever reports them still running?{_astray(seen)}"
    )


def _never(seen: Evidence) -> str | None:
    count, least = float(seen.decisions), SILENT_DEFAULTS if seen.defaults else SILENT
    if count >= least and seen.window is not None:
        count *= float((seen.age >= seen.window).mean())
    if count < least:
        return None
    if seen.window is None:
        which, remedy = "", ". If rewards take long, say so with Explicit(window)"
    else:
        which, remedy = " whose window has ended", ""
    return (
        f"none of {count:.0f} decisions{which} has a reward. Report each with"
        f" observe(decision.id, value){remedy}{_astray(seen)}"
    )


def _astray(seen: Evidence) -> str:
    if not seen.unmatched:
        return ""
    return f". {seen.unmatched} events are for ids that no decision has: use decision.id"


def duplicates(seen: Evidence) -> str | None:
    """More than a third of the events say what is known."""
    total = seen.rewards + seen.duplicates
    if total < MANY or 3 * seen.duplicates <= total:
        return None
    return (
        f"{seen.duplicates} of {total} rewards were reported before. They count once, but each"
        " costs as much as a new one: let whoever reports stop retrying once it has an answer"
    )
