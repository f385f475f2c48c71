"""A bandit whose journal is given by its address."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import quote

import numpy as np
import pytest

from belated import Bandit, Bernoulli, DelayedUCB, Explicit
from belated.exceptions import InvalidInput
from belated.journals import Store

UCB = DelayedUCB(2, Bernoulli())


def test_a_bandit_goes_on_where_its_address_leads(address: str, store: Store, bandit: str) -> None:
    """As with the journal itself."""
    bandit_address = f"{address}?bandit={quote(bandit)}"
    with Bandit(policy=UCB, rewards=Explicit(), journal=bandit_address) as first:
        decision = first.decide(rows=np.eye(2))
    with Bandit(policy=UCB, rewards=Explicit(), journal=bandit_address) as second:
        assert second.observe(decision.id, 1.0).status == "rewarded"
    with store.journal(bandit) as journal:
        assert journal.end(0) == 3  # the first says what the bandit is


def test_a_path_is_refused_with_the_address_to_use(tmp_path: Path) -> None:
    """Nothing is created."""
    path = tmp_path / "offers.db"
    cure = f"is not an address: for that file use 'sqlite:///{path}'"
    with pytest.raises(InvalidInput, match=cure):
        Bandit(policy=UCB, rewards=Explicit(), journal=str(path))
    odd_path = tmp_path / "50%?a=b.db"
    odd_path.touch()
    with pytest.raises(InvalidInput, match=r"for that file use 'sqlite:///.*50%25%3Fa=b.db'"):
        Bandit(policy=UCB, rewards=Explicit(), journal=str(odd_path))
    assert not path.exists()
