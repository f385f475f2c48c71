"""What the stored identity of a journal says of its rewards and rows, and the fold they need."""

from __future__ import annotations

import re

from belated.exceptions import InvalidInput
from belated.families import Bernoulli, Family, Gaussian, Poisson
from belated.journals import StoredBandit
from belated.learner import Fold
from belated.policies import Greedy
from belated.rewards import Rewards

#: What to say of a snapshot that another fold has made.
OTHER_SETTINGS = (
    "was made with other settings, or by another release: give --window, --default, --retention, "
    "--reduce and --bounds as the bandit has them"
)


def family_of(identity: dict[str, str]) -> Family:
    """The family a bandit wrote down: as its text, which is parsed and never run.

    >>> family_of({"family": "Gaussian(variance=0.25)"})
    Gaussian(variance=0.25)
    """
    text = identity.get("family", "")
    found: Family | None = None
    if text in ("Bernoulli()", "Poisson()"):
        found = Bernoulli() if text == "Bernoulli()" else Poisson()
    elif text == "Gaussian(variance='estimate')":
        found = Gaussian("estimate")
    elif match := re.fullmatch(r"Gaussian\(variance=([0-9.e+-]+)\)", text):
        try:
            found = Gaussian(float(match[1]))
        except ValueError:
            found = None
    if found is None or repr(found) != text:
        raise InvalidInput(f"its family {text!r} is none of this library", text)
    return found


def dim_of(identity: dict[str, str]) -> int:
    """How many numbers a row has.

    >>> dim_of({"dim": "8"})
    8
    """
    text = identity.get("dim", "")
    if not re.fullmatch(r"[1-9][0-9]{0,8}", text):
        raise InvalidInput(f"its rows have {text!r} numbers, which is no number", text)
    return int(text)


def empty_fold(bandit: StoredBandit, rewards: Rewards, retention: int | None) -> Fold:
    """A fold of nothing, which learns what the bandit does; how it chooses does not matter.

    Raises:
        InvalidInput: no bandit has used the journal yet, or one that nobody here knows.
    """
    identity = bandit.identity
    if identity is None:
        raise InvalidInput(f"no bandit has used the journal of {bandit.name} yet")
    policy = Greedy(dim_of(identity), family_of(identity))
    return Fold(policy, rewards, partitions=bandit.partitions, retention=retention)
