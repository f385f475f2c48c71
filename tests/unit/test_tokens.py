"""Tokens of rewards: what is genuine is taken, and nothing else is."""

from __future__ import annotations

import base64
import random
import string
from typing import Any

import numpy as np
import pytest

from belated.core.events import Decision
from belated.exceptions import AccessDenied, InvalidInput, RateLimited
from belated.service.access import tokens as tokens_module
from belated.service.access.tokens import LIFETIME, NOBODY, RewardTokens, TokenMode, TokenSecrets
from belated.service.http.problems import problem_of
from belated.wire.messages import RewardBody

NOW = 1_700_000_000_000_000
SECOND = 1_000_000
ROW = np.array([1.0, 0.5], dtype=np.float32)
SECRETS = {"new": bytes(range(32)), "old": bytes(range(1, 33))}


class Clock:
    """A time that is set."""

    now = NOW

    def __call__(self) -> int:
        """It."""
        return self.now


@pytest.fixture
def clock() -> Clock:
    """One for each test."""
    return Clock()


def tokens_of(
    bandit: str = "offers",
    *,
    mode: TokenMode = "enforce",
    guarded: bool = False,
    secrets: dict[str, bytes] = SECRETS,
    clock: Any = lambda: NOW,
    most: float = 1.0,
) -> RewardTokens:
    """Tokens of a bandit."""
    keys = TokenSecrets(secrets)
    return RewardTokens(keys, bandit, mode=mode, guarded=guarded, least=0.0, most=most, clock=clock)


def decided(id: str = "a", at: int = NOW) -> Decision:
    """A decision."""
    return Decision(id, at, 0, 0, ROW, 0.5, 1.0, 0)


def takes(
    tokens: RewardTokens, id: str, token: str | None, value: float = 1.0, *, keyed: bool = False,
    **more: Any,
) -> bool:  # fmt: skip
    """Whether a reward is taken; if not, it is refused with a problem."""
    try:
        tokens.check(id, RewardBody(value, token=token, **more), keyed)
    except AccessDenied:
        return False
    return True


# --- what is genuine -----------------------------------------------------------------------------


def test_the_token_of_a_decision_is_taken_with_any_value_in_its_range() -> None:
    """As often as it comes: a retry is safe."""
    tokens = tokens_of()
    token = tokens.of(decided())
    for value in (0.0, -0.0, 5e-324, 0.25, 1.0, 1.0):
        assert takes(tokens, "a", token, value)
    assert tokens.of(decided()) == token


def test_a_token_is_compact_and_fit_for_an_address() -> None:
    """Its key is named in it, and nothing else can be read out of it but its end and its range."""
    token = tokens_of().of(decided("someone@example.com"))
    assert token.startswith("new.")
    assert len(token) == 4 + 72
    assert set(token) <= set(string.ascii_letters + string.digits + "-_.")


def test_a_token_ends(clock: Clock) -> None:
    """After its lifetime, to the second."""
    tokens = tokens_of(clock=clock)
    token = tokens.of(decided())
    clock.now = NOW + LIFETIME - 1
    assert takes(tokens, "a", token)
    clock.now = NOW + LIFETIME + SECOND
    assert not takes(tokens, "a", token)
    assert tokens.seen["expired"] == 1


def test_keys_can_be_replaced() -> None:
    """The first signs, the others verify; one that is gone does neither."""
    before = tokens_of(secrets={"old": SECRETS["old"]})
    token = before.of(decided())
    between = tokens_of()
    assert takes(between, "a", token)
    assert between.of(decided()).startswith("new.")
    after = tokens_of(secrets={"new": SECRETS["new"]})
    assert not takes(after, "a", token)
    assert takes(after, "a", between.of(decided()))


# --- what is not ---------------------------------------------------------------------------------


def test_of_a_hundred_thousand_forgeries_none_is_taken(clock: Clock) -> None:
    """Guessed, cut, flipped, mixed, of another decision, bandit, key or time: each a thousand."""
    rng = random.Random(20_261_115)
    clock.now = NOW
    tokens, other_tokens = tokens_of(clock=clock), tokens_of("others", clock=clock)
    foreign_tokens = tokens_of(secrets={"new": rng.randbytes(32), "old": rng.randbytes(32)})
    letters = string.ascii_letters + string.digits + "-_"
    genuine = [tokens.of(decided(f"d{n}")) for n in range(1_000)]
    attempts = accepted = 0
    for n, token in enumerate(genuine):
        id, other_id = f"d{n}", genuine[n - 1]
        raw = bytearray(base64.urlsafe_b64decode(token[4:]))
        flips = []
        for _ in range(40):
            flipped = bytearray(raw)
            flipped[rng.randrange(len(raw))] ^= 1 << rng.randrange(8)
            flips.append(token[:4] + base64.urlsafe_b64encode(flipped).decode())
        for _ in range(20):
            at = rng.randrange(len(token))
            letter = rng.choice([candidate for candidate in letters if candidate != token[at]])
            flips.append(token[:at] + letter + token[at + 1 :])
        cuts = [token[: rng.randrange(len(token))] for _ in range(10)]
        cuts += [token[rng.randrange(1, len(token)) :] for _ in range(5)]
        guesses = ["new." + "".join(rng.choices(letters, k=72)) for _ in range(10)]
        ends = tokens.of(decided(id, NOW + 365 * 86_400 * SECOND))
        mixed = [
            other_id,
            other_tokens.of(decided(id)),
            foreign_tokens.of(decided(id)),
            "old." + token[4:],
            ends[:12] + token[12:],  # the end of another, the signature of this
            token + "=",
            token + "AAAA",
            token + ".",
            "." + token[4:],
            " " + token,
            token + "\n",
            token[:20] + "\n" + token[20:],  # which lenient decoders skip
            token.swapcase(),
            "é" + token,
            "",
        ]
        for forgery in (*flips, *cuts, *guesses, *mixed):
            assert forgery != token
            attempts += 1
            accepted += takes(tokens, id, forgery)
        accepted += takes(tokens, f"{id} ", token) + takes(tokens, id.upper(), token)
        attempts += 2
    assert attempts >= 100_000
    assert accepted == 0
    assert tokens.seen["forged"] == attempts


def test_a_bandit_and_an_id_cannot_be_divided_otherwise() -> None:
    """What one has at its end, the other cannot have at its beginning."""
    token = tokens_of("ab").of(decided("c"))
    assert takes(tokens_of("ab"), "c", token)
    assert not takes(tokens_of("a"), "bc", token)
    assert not takes(tokens_of("abc"), "", token)


@pytest.mark.parametrize("value", [-1e-9, 1.0000001, 1e308, -1e308])
def test_a_value_outside_the_range_of_the_token_is_refused(value: float) -> None:
    """Also where the bandit would take it by now."""
    token = tokens_of(most=1.0).of(decided())
    wider_tokens = tokens_of(most=1e308)
    assert not takes(wider_tokens, "a", token, value)
    assert wider_tokens.seen["range"] == 1


def test_a_token_alone_is_for_one_reward() -> None:
    """Neither parts nor revisions, nor times of its own; with a key they can be."""
    tokens = tokens_of(guarded=True)
    token = tokens.of(decided())
    assert not takes(tokens, "a", token, part="basket")
    assert not takes(tokens, "a", token, revision=1)
    assert not takes(tokens, "a", token, at=NOW)
    assert takes(tokens, "a", token, part="basket", revision=1, at=NOW, keyed=True)


# --- modes ---------------------------------------------------------------------------------------

FORGED = "new." + "A" * 72


@pytest.mark.parametrize(
    ("mode", "guarded", "keyed", "expected"),
    [
        # whether it is taken: with a good token, with a bad one, with none
        ("enforce", False, False, (True, False, False)),
        ("enforce", True, False, (True, False, False)),
        ("enforce", True, True, (True, False, True)),
        ("report", False, False, (True, True, True)),
        ("report", True, False, (True, False, False)),  # nothing else speaks for it
        ("report", True, True, (True, True, True)),
    ],
)
def test_what_is_taken(
    mode: TokenMode, guarded: bool, keyed: bool, expected: tuple[bool, bool, bool]
) -> None:
    """And all of it is counted, by what the token was."""
    tokens = tokens_of(mode=mode, guarded=guarded)
    tokens_given = (tokens.of(decided()), FORGED, None)
    assert tuple(takes(tokens, "a", token, keyed=keyed) for token in tokens_given) == expected
    assert {k: v for k, v in tokens.seen.items() if v} == {"valid": 1, "forged": 1, "missing": 1}


def test_the_status_says_what_is_missing() -> None:
    """401 where a key would do, 403 where the token is bad or nothing but a token would do."""

    def status(tokens: RewardTokens, token: str | None) -> int:
        with pytest.raises(AccessDenied) as error:
            tokens.check("a", RewardBody(1.0, token=token), False)
        problem, headers = problem_of(error.value)
        status = problem.status
        assert ("www-authenticate" in headers) == (status == 401)
        return status

    assert status(tokens_of(guarded=True), None) == status(NOBODY, None) == 401
    assert status(tokens_of(guarded=True), FORGED) == status(NOBODY, FORGED) == 403
    assert status(tokens_of(), None) == 403


# --- how often -----------------------------------------------------------------------------------


def test_a_token_reports_ten_times_a_minute(clock: Clock) -> None:
    """Each for itself; the eleventh waits for the minute to end, and is not refused for good."""
    tokens = tokens_of(clock=clock)
    token, other_token = tokens.of(decided("a")), tokens.of(decided("b"))
    for _ in range(10):
        assert takes(tokens, "a", token)
        clock.now += 1_000_000
    with pytest.raises(RateLimited, match="10 times in 60 s") as error:
        tokens.check("a", RewardBody(1.0, token=token), False)
    assert problem_of(error.value)[1]["retry-after"] == "50"
    assert takes(tokens, "b", other_token)
    clock.now += 50_000_000
    assert takes(tokens, "a", token)


def test_who_has_a_key_reports_as_often_as_that_allows(clock: Clock) -> None:
    """The bound is for strangers."""
    tokens = tokens_of(clock=clock, guarded=True)
    token = tokens.of(decided())
    assert all(takes(tokens, "a", token, keyed=True) for _ in range(30))


def test_so_many_ids_are_remembered(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond them the count begins again: memory is bounded, too."""
    monkeypatch.setattr(tokens_module, "MAX_REMEMBERED", 3)
    tokens = tokens_of(clock=clock)
    for id in ("a", "b", "c", "d"):
        assert takes(tokens, id, tokens.of(decided(id)))
    assert {*tokens._reports} == {"d"}


# --- the keys ------------------------------------------------------------------------------------


def test_keys_are_read_from_a_text() -> None:
    """In their order; the usual base64, and that for addresses."""
    secret = base64.b64encode(b"\xff" * 32).decode()
    keys = TokenSecrets.read(f"b:{secret}, a:{secret.replace('/', '_')}")
    assert list(keys.secrets) == ["b", "a"]
    assert set(keys.secrets.values()) == {b"\xff" * 32}
    assert repr(keys) == "TokenSecrets('b', 'a')"


@pytest.mark.parametrize(
    "text", ["", "secret", "a:", ":AAAA", "a:" + "A" * 44 + ",", "a b:" + "A" * 44, "a:QUJD",
             "a:" + "A" * 41, "a:" + "A" * 43 + "=,a:" + "A" * 43 + "="],
)  # fmt: skip
def test_what_is_no_key_is_refused_and_not_repeated(text: str) -> None:
    """It may be half of a secret."""
    with pytest.raises(InvalidInput, match="token key") as error:
        TokenSecrets.read(text)
    assert "AAA" not in str(error.value)
    assert "QUJD" not in str(error.value)
    assert error.value.value is None
