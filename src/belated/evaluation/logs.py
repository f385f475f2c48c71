"""Logs of other systems: what they decided and what came of it, as a journal to be evaluated.

* DSJSON, the lines that Vowpal Wabbit and Azure Personalizer write; what we export is among it.
* The arrays of Open Bandit Pipeline's ``bandit_feedback``, saved with ``numpy.savez``.
* Frames: see :mod:`belated.evaluation.frames`.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any, BinaryIO

import numpy as np

from belated.core.events import Configured, Decision, Event, Reward, Settled
from belated.core.ids import check_id
from belated.core.inputs import MAX_REWARD, Row, Vector, as_rows
from belated.core.rewards import Explicit, Rewards
from belated.core.times import as_microseconds
from belated.exceptions import InvalidInput
from belated.features import Features, Hashed, PerArm
from belated.fold.contexts import PackedContext, name_of, pack_context
from belated.fold.requests import keep_request
from belated.journals import Journal
from belated.journals.identity import identify, settings_of
from belated.model.families import Bernoulli, Family, Gaussian

#: Columns into which the features of a DSJSON line are hashed, unless it has rows.
HASHED = 64
#: Decisions written at a time.
PAGE = 5_000
_SECOND = 1_000_000


@dataclass(frozen=True, eq=False)
class LoggedDecision:
    """One decision of another system, with its outcome.

    Attributes:
        id: decision id; None: a number in the log.
        at: when, in microseconds since 1970; None: a second after the one before it.
        actions: names of what was on offer.
        index: place of the chosen one.
        propensities: probability of each; NaN if it is not known, but for the chosen one.
        reward: what came of it; None if it is pending.
        rows: of the actions, if the log has them; else features make them of the next two.
        context: what was known before choosing.
        records: of the actions, if there are any.
        share: the probability with which the line was kept in the log.
        rewarded: when the reward came, in microseconds since 1970; None: at once.
        mean: predicted mean reward at the choice.
    """

    id: str | None
    at: int | None
    actions: Sequence[int | str]
    index: int
    propensities: Sequence[float]
    reward: float | None
    rows: Row | None = None
    context: Any = None
    records: Sequence[Mapping[str, Any]] | None = None
    share: float = 1.0
    rewarded: int | None = None
    mean: float = 0.0


def import_log(
    journal: Journal,
    log: Iterable[LoggedDecision],
    features: Features | None,
    *,
    rewards: Rewards | None = None,
    family: Family | None = None,
    as_of: int | None = None,
) -> int:
    """Write the decisions of a log into a new journal, with the stamps that they had.

    Args:
        journal: a new one.
        log: in the order of time.
        features: that make rows, unless the log has them.
        rewards: what a missing reward means; None: all are reported.
        family: of the rewards; None: by their range.
        as_of: settle what was due by then, in microseconds since 1970.

    Returns:
        How many decisions were written.
    """
    decisions = list(log)
    if not decisions:
        raise InvalidInput("the log has no decision with a known outcome: is it of this format?")
    first = decisions[0].rows
    dim = features.dim if features is not None else 0 if first is None else first.shape[1]
    if family is None:
        family = family_of(np.array([one.reward for one in decisions], np.float64))
    identify(journal, family=repr(family), dim=dim, features=features)
    stamp = as_microseconds("2000-01-01T00:00:00Z", "at")
    stamped: list[tuple[int, Event, bytes | None]] = []
    for n, one in enumerate(decisions):
        stamp = max(stamp, stamp + _SECOND if one.at is None else one.at)
        try:
            decision, request = _events_of(one, n, stamp, features)
        except InvalidInput as error:
            raise InvalidInput(f"decision {n + 1} of the log: {error}", error.value) from None
        stamped.append((stamp, decision, request))
        if one.reward is not None:
            came = stamp if one.rewarded is None else one.rewarded
            stamped.append((came, Reward(decision.id, came, one.reward), None))
    rewards = rewards or Explicit()
    stamped.sort(key=itemgetter(0))
    stamped = _settled(stamped, rewards.window_us, as_of)
    said = f"of another system, family={family!r}"
    settings = settings_of(said, rewards, None, features)
    journal.append([Configured(stamped[0][0], settings)], recorded=[stamped[0][0]])
    for start in range(0, len(stamped), PAGE):
        stamps, events, requests = zip(*stamped[start : start + PAGE], strict=True)
        kept = {place: request for place, request in enumerate(requests) if request is not None}
        journal.append(events, recorded=stamps, requests=kept)
    return len(decisions)


def _settled(
    stamped: list[tuple[int, Event, bytes | None]], window: int | None, as_of: int | None
) -> list[tuple[int, Event, bytes | None]]:
    """Events with what settles the decisions whose windows end, as a bandit would have done it."""
    found: list[tuple[int, Event, bytes | None]] = []
    waiting: deque[tuple[int, str]] = deque()
    rewarded: set[str] = set()

    def settle(now: int) -> None:
        due = False
        while waiting and waiting[0][0] <= now:
            due |= waiting.popleft()[1] not in rewarded
        if due:
            found.append((now, Settled(0, now), None))

    for line in stamped:
        stamp, event, _ = line
        settle(stamp)
        found.append(line)
        if isinstance(event, Reward):
            rewarded.add(event.id)
        elif isinstance(event, Decision) and window is not None:
            waiting.append((stamp + window, event.id))
    if as_of is not None:
        found.append((as_of, Settled(0, as_of), None))
    return found


def family_of(rewards: Vector) -> Family:
    """Return the family for rewards: from 0 to 1, or anywhere; NaN says nothing."""
    told = rewards[~np.isnan(rewards)]
    inside = told.min(initial=0.0) >= 0.0 and told.max(initial=1.0) <= 1.0
    return Bernoulli() if inside else Gaussian()


def _events_of(
    one: LoggedDecision, n: int, stamp: int, features: Features | None
) -> tuple[Decision, bytes | None]:
    id = f"line-{n + 1}" if one.id is None else check_id(one.id)
    actions: Any = one.actions
    if one.records is not None:
        actions = dict(zip(one.actions, one.records, strict=True))
    context = None
    if one.rows is not None:
        rows = as_rows(one.rows, one.rows.shape[1])
    else:
        assert features is not None
        rows = features.rows(one.context, actions)
        context = pack_context(one.context, actions, features)
    kept = keep_request(id, 1.0, len(rows), one.actions, rows, context, one.propensities, one.index)
    if kept is not None and one.share < 1.0:
        kept = _with_share(kept, one.share)
    decision = Decision(
        id,
        stamp if one.at is None else one.at,
        one.actions[one.index],
        one.index,
        rows[one.index],
        one.mean,
        one.propensities[one.index],
        0,
        context=_made_of(context, one.index, features),
    )
    return decision, kept


def _made_of(context: PackedContext | None, index: int, features: Features | None) -> bytes:
    if context is None or features is None:
        return b""
    return name_of(features.fingerprint) + context.of_decision(index)


def _with_share(kept: bytes, share: float) -> bytes:
    return kept[:1] + np.array([share], "<f8").tobytes() + kept[9:]


def _checked(one: LoggedDecision, columns: Mapping[str, str]) -> LoggedDecision:
    """Return a decision whose numbers can be computed with.

    Args:
        one: as it was read.
        columns: what the log calls them.

    Raises:
        InvalidInput: names the column.
    """
    if not 0 <= one.index < len(one.propensities):
        count = len(one.propensities)
        message = f"{columns['index']} is {one.index}: there are {count} actions, from 0 on"
        raise InvalidInput(message, one.index)
    for place, share in enumerate(one.propensities):
        unknown = share != share and place != one.index
        if not (unknown or 0.0 <= share <= 1.0) or (place == one.index and share == 0.0):
            expected = "a probability was expected, above 0 for the chosen action"
            message = f"{columns['propensities']} of action {place} is {share}: {expected}"
            raise InvalidInput(message, share)
    if one.reward is not None and not abs(one.reward) <= MAX_REWARD:
        message = f"{columns['reward']} has the size {abs(one.reward):g}"
        raise InvalidInput(f"{message}: at most {MAX_REWARD:g} was expected", one.reward)
    if not 0.0 < one.share <= 1.0:
        raise InvalidInput(f"pdrop is {1.0 - one.share}: from 0 to below 1 was expected", one.share)
    if one.rows is not None:
        as_rows(one.rows, one.rows.shape[-1])
    return one


_DSJSON = {"index": "_labelIndex", "propensities": "p", "reward": "_label_cost"}
_OBP = {"index": "action", "propensities": "pi_b", "reward": "reward"}


# --- DSJSON ---------------------------------------------------------------------------------------


def features_of_dsjson(log: Sequence[LoggedDecision]) -> Features | None:
    """Return what makes rows of the lines; None if they have rows themselves."""
    return None if all(one.rows is not None for one in log) else Hashed(HASHED)


def read_dsjson(file: BinaryIO, name: str = "the log") -> Iterator[LoggedDecision]:
    """Return the decisions of a DSJSON file; lines that are no decision are passed over.

    Args:
        file: of the lines.
        name: of the file, for people.

    Raises:
        InvalidInput: a line is damaged; names it.
    """
    for number, text in enumerate(file, start=1):
        if not text.strip():
            continue
        try:
            line = json.loads(text)
            if isinstance(line, dict) and "_label_cost" in line and "c" in line:
                yield _checked(_of_dsjson(line), _DSJSON)
        except (ValueError, KeyError, TypeError, IndexError) as error:
            message = f"{name}, line {number}: {type(error).__name__}: {error}"
            raise InvalidInput(f"{message}; mend or remove it", number) from None


def _of_dsjson(line: Mapping[str, Any]) -> LoggedDecision:
    multi = line["c"]["_multi"]
    ranked, shares = line["a"], line["p"]
    propensities = [0.0] * len(multi)
    for place, share in zip(ranked, shares, strict=True):
        propensities[place - 1] = float(share)
    chosen = int(line.get("_labelIndex", ranked[0] - 1))
    records = [
        _record({k: v for k, v in one.items() if k != "a"} | one.get("a", {})) for one in multi
    ]
    names: list[Any] = [record.pop("action", None) for record in records]
    if len({*names}) != len(names) or None in names:
        names = list(range(len(multi)))
    rows = None
    if all(set(one) == {"a"} and "x" in one["a"] for one in multi):
        rows = np.array([one["a"]["x"] for one in multi], dtype=np.float32)
    at = line.get("Timestamp")
    shared = {key: value for key, value in line["c"].items() if not key.startswith("_")}
    known = shared["shared"] if list(shared) == ["shared"] else _record(shared)
    return LoggedDecision(
        id=line.get("EventId"),
        at=None if at is None else as_microseconds(_time(at), "Timestamp"),
        actions=names,
        index=chosen,
        propensities=propensities,
        reward=-float(line["_label_cost"]),
        rows=rows,
        context=None if rows is not None else known,
        records=None if rows is not None else records,
        share=1.0 - float(line.get("pdrop", 0.0)),
    )


def _time(text: str) -> str:
    """A time with at most six digits of a second: others write seven."""
    whole, dot, rest = text.partition(".")
    digits = rest.rstrip("Z")
    return f"{whole}.{digits[:6]}Z" if dot and rest.endswith("Z") else text


def _record(given: Mapping[str, Any]) -> dict[str, Any]:
    """Namespaces and lists as one record of numbers and texts."""
    found: dict[str, Any] = {}
    for name, value in given.items():
        if name.startswith("_"):
            continue
        if isinstance(value, Mapping):
            found |= {f"{name}.{inner}": one for inner, one in _record(value).items()}
        elif isinstance(value, list):
            found |= _record({f"{name}.{n}": one for n, one in enumerate(value)})
        elif isinstance(value, bool):
            found[name] = float(value)
        elif value is not None:
            found[name] = value
    return found


# --- Open Bandit Pipeline -------------------------------------------------------------------------


def features_of_obp(log: Sequence[LoggedDecision]) -> Features:
    """Return what makes rows of the contexts: each action has coefficients of its own."""
    return PerArm(list(log[0].actions), context=len(log[0].context))


def read_obp(file: BinaryIO | Mapping[str, Any], name: str = "the log") -> Iterator[LoggedDecision]:
    """Return the decisions of Open Bandit Pipeline's ``bandit_feedback``.

    Args:
        file: ``bandit_feedback`` itself, or as ``numpy.savez("log.npz", **feedback)`` wrote it.
        name: of the file, for people.

    Raises:
        InvalidInput: it is none.
    """
    try:
        log = file if isinstance(file, Mapping) else np.load(file, allow_pickle=False)
        context, action = np.asarray(log["context"], float), np.asarray(log["action"], int)
        reward, pscore = np.asarray(log["reward"], float), np.asarray(log["pscore"], float)
        known = {key: log[key] for key in ("pi_b", "n_actions", "position") if key in log}
    except (ValueError, KeyError, OSError) as error:
        message = f"{name} is not a bandit_feedback of Open Bandit Pipeline ({error})"
        raise InvalidInput(f"{message}: save it with numpy.savez('log.npz', **feedback)") from None
    count = int(known["n_actions"]) if "n_actions" in known else int(action.max()) + 1
    shares = _shares_of_obp(known, pscore, count, action)
    for n in range(len(action)):
        one = LoggedDecision(
            id=None,
            at=None,
            actions=list(range(count)),
            index=int(action[n]),
            propensities=shares[n].tolist(),
            reward=float(reward[n]),
            context=context[n].tolist(),
        )
        try:
            yield _checked(one, _OBP)
        except InvalidInput as error:
            raise InvalidInput(f"{name}, decision {n}: {error}", n) from None


def _shares_of_obp(known: Mapping[str, Any], pscore: Any, count: int, action: Any) -> Any:
    if known.get("pi_b") is not None:
        shares = np.asarray(known["pi_b"], float)
        if shares.ndim == 3:
            position = known.get("position")
            plain = position is None or np.asarray(position).dtype == object
            places = np.zeros(len(shares), int) if plain else np.asarray(position, int)
            shares = shares[np.arange(len(shares)), :, places]
        return shares
    if np.allclose(pscore, 1.0 / count):
        return np.full((len(pscore), count), 1.0 / count)
    shares = np.full((len(pscore), count), np.nan)  # only that of the chosen action is known
    shares[np.arange(len(pscore)), action] = pscore
    return shares


#: By the name of the format: what reads a log, and what makes rows of its contexts.
READERS: dict[str, tuple[Any, Any]] = {
    "dsjson": (read_dsjson, features_of_dsjson),
    "obp": (read_obp, features_of_obp),
}
