"""Parts of a config file, and what is wrong with one."""

from __future__ import annotations

import pytest

from belated.exceptions import InvalidConfig
from belated.service.operating.config import parse_config

STORE = '[store]\naddress = "postgresql://localhost/belated"\n'
OFFERS = """[bandits.offers]
policy = "DelayedUCB(dim=20, family=Bernoulli())"
rewards = "Explicit(window='7d')"
"""


def mistakes(text: str, **environment: str) -> list[str]:
    """What is said of a file that is refused."""
    with pytest.raises(InvalidConfig) as caught:
        parse_config(text, environment=environment)
    assert str(caught.value) == "; ".join(caught.value.mistakes)
    return list(caught.value.mistakes)
