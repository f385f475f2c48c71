"""What a bandit is, in its journal: so that a journal explains itself without its code."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from belated.core.events import Configured
from belated.core.rewards import ConversionsOnly, DefaultAfter, Explicit, Rewards, retention_us
from belated.core.times import format_duration, parse_duration
from belated.exceptions import InvalidInput, JournalMismatch
from belated.features import Features, Hashed, PerArm, Shared
from belated.journals.journal import Journal
from belated.journals.log import UniqueLog

_REDUCE = ("latest", "sum", "max")


def settings_of(
    policy: object,
    rewards: Rewards,
    retention: int | None,
    features: Features | None,
    holdout: int | str | None = None,
) -> dict[str, str]:
    """What a bandit is, as readable text by name; what it does not have is left out.

    Args:
        policy: how actions are chosen.
        rewards: what a missing reward means.
        retention: how long decisions accept rewards, in microseconds; None: for ever.
        features: what makes rows, if anything does.
        holdout: the baseline that decides for the holdout; None without one.

    >>> settings_of("Greedy()", DefaultAfter("90m"), None, None)
    {'policy': 'Greedy()', 'rewards': 'DefaultAfter', 'reduce': 'latest', 'window': '1h30m', \
'default': '0.0'}
    """
    window, bounds = rewards.window_us, rewards.bounds
    attribution = rewards.attribution_us or 0
    names = None if features is None else features.names
    actions = getattr(features, "actions", None)
    found = {
        "policy": str(policy),
        "rewards": type(rewards).__name__,
        "reduce": rewards.reduce,
        "window": None if window is None else format_duration(window),
        "default": repr(rewards.default) if isinstance(rewards, DefaultAfter) else None,
        "learn": "together" if getattr(rewards, "learn", None) == "together" else None,
        "delivery": rewards.delivery if isinstance(rewards, ConversionsOnly) else None,
        "bounds": None if bounds is None else f"{bounds[0]!r}, {bounds[1]!r}",
        "attribution": None if rewards.attribution is None else format_duration(attribution),
        "retention": None if retention is None else format_duration(retention),
        "features": None if features is None else _written(features),
        "names": None if names is None else ", ".join(names),
        "actions": None if actions is None else ", ".join(map(str, actions)),
        "holdout": None if holdout is None else str(holdout),
    }
    return {name: value for name, value in found.items() if value is not None}


def _written(features: Features) -> str:
    """Features as a service's file has them; of your own, which may print anything, their name."""
    ours = isinstance(features, PerArm | Shared | Hashed)
    return repr(features) if ours else type(features).__name__


def semantics_of(settings: Mapping[str, str]) -> tuple[Rewards, int | None]:
    """What a missing reward means, and the retention in microseconds, as settings say it.

    >>> settings = settings_of("Greedy()", Explicit("7d"), None, None)
    >>> semantics_of(settings)[0] == Explicit("7d")
    True
    >>> settings = settings_of("Greedy()", Explicit("7d", attribution="1d"), None, None)
    >>> semantics_of(settings)[0]
    Explicit(window=datetime.timedelta(days=7), reduce='latest', bounds=None, \
attribution=datetime.timedelta(days=1))

    Raises:
        InvalidInput: they are of another release.
    """
    try:
        window = settings.get("window")
        retention = settings.get("retention")
        bounds = settings.get("bounds")
        reduce = next(one for one in _REDUCE if one == settings["reduce"])
        limits = None if bounds is None else tuple(map(float, bounds.split(", ")))
        span = None if window is None else parse_duration(window)
        rewards: Rewards
        if settings["rewards"] == "DefaultAfter":
            value = float(settings["default"])
            learn = settings.get("learn", "on arrival")
            rewards = DefaultAfter(span, value=value, learn=learn, reduce=reduce, bounds=limits)  # type: ignore[arg-type]
        elif settings["rewards"] == "ConversionsOnly":
            delivery = settings.get("delivery", "auto")
            rewards = ConversionsOnly(span, delivery=delivery, reduce=reduce, bounds=limits)  # type: ignore[arg-type]
        elif settings["rewards"] == "Explicit":
            rewards = Explicit(span, reduce=reduce, bounds=limits)  # type: ignore[arg-type]
        else:
            raise ValueError(settings["rewards"])
        if "attribution" in settings:
            rewards = replace(rewards, attribution=settings["attribution"])
        kept = None if retention is None else parse_duration(retention)
    except (KeyError, ValueError, TypeError, StopIteration) as error:
        message = f"the journal's settings {dict(settings)!r} cannot be read ({error!r})"
        raise InvalidInput(f"{message}: upgrade belated, or give options", settings) from None
    return rewards, retention_us(kept, rewards)


def configure(journal: UniqueLog, settings: Mapping[str, str], at: int) -> bool:
    """Write into the journal what the bandit is; False if that is what it said last.

    Args:
        journal: of the bandit.
        settings: from :func:`settings_of`.
        at: the time, in microseconds since 1970.
    """
    last = journal.configured()
    if last is not None and last.settings == settings:
        return False
    journal.append([Configured(at, dict(settings))])
    return True


def identify(
    journal: Journal,
    *,
    family: str,
    dim: int,
    features: Features | None = None,
    contexts: bool = True,
) -> None:
    """Write into a new journal what its bandit is; refuse one that was made for another.

    The identity takes the features of the bandit, which encodes decisions of others again.

    Args:
        journal: Journal of the bandit.
        family: Reward family, as its ``repr``.
        dim: Number of coefficients.
        features: What makes rows, if anything does.
        contexts: Whether contexts are stored.

    Raises:
        JournalMismatch: the journal was made for another family, for rows of another width, or for
            other features and without contexts.
    """
    mine = identity_of(family=family, dim=dim, features=features, contexts=contexts)
    theirs = journal.identify(mine)
    if theirs != mine:
        check_change(theirs, mine, features)
        journal.reidentify(mine)


def identity_of(
    *, family: str, dim: int, features: Features | None, contexts: bool
) -> dict[str, str]:
    """Return what a journal says of its bandit; the arguments are those of :func:`identify`."""
    identity = {
        "family": family,
        "dim": str(dim),
        "features": "" if features is None else features.fingerprint,
    }
    if (blocks := getattr(features, "blocks", None)) is not None:
        identity["blocks"] = str(blocks)
    if features is not None and not contexts:
        identity["contexts"] = "no"
    return identity


def check_change(
    theirs: Mapping[str, str], mine: Mapping[str, str], features: Features | None
) -> None:
    """Refuse to open a journal with features from which its decisions cannot be encoded.

    Args:
        theirs: identity of the journal.
        mine: identity of the bandit that opens it.
        features: of that bandit.
    """
    if theirs["family"] != mine["family"]:
        message = f"the journal was made for {theirs['family']}, not {mine['family']}"
        raise JournalMismatch(f"{message}: open it as it was made, or choose another journal")
    if features is None or not theirs["features"]:
        what = f"rows of {theirs['dim']} numbers, not {mine['dim']}"
        if theirs["features"] != mine["features"]:
            what = "rows that callers pass, not for features"
            if theirs["features"]:
                what = "features, not for rows that callers pass"
        message = f"the journal was made for {what}: open it as it was made"
        raise JournalMismatch(f"{message}, or choose another journal")
    if "contexts" in theirs and not features.extends(theirs["features"]):
        message = (
            "the features are not those of the journal, whose decisions are stored with "
            "contexts=False: without contexts, rows cannot be encoded again"
        )
        raise JournalMismatch(
            f"{message}. Open it with the features it had, or choose another journal and leave out "
            "contexts=False"
        )
