"""What is played with forged rewards, and how."""

from __future__ import annotations

from belated import delays, environments

#: Rounds of a run, and rounds decided with one model, which knows all that was told before. After
#: 1,000 decisions a learner makes its roots anew, but counts from its last snapshot, which comes at
#: a moment of its own: so there are fewer.
HORIZON, STEP = 900, 50
WORLDS = {"fixed": environments.fixed, "users": environments.users}
DELAY = delays.Geometric(mean=100)
#: Forged rewards in a step, and rewards in it that are replayed: 5 for 50 decisions are 10 %.
FORGED, REPLAYED = 5, 1

#: Ways to play the same seed: what is done with tokens, and whether anyone forges rewards.
HONEST, AGAIN = "honest", "honest, again"
ENFORCED, REPORTED, OFF = "forged, enforce", "forged, report", "forged, off"
WAYS = {
    HONEST: ("enforce", False),
    AGAIN: ("enforce", False),
    ENFORCED: ("enforce", True),
    REPORTED: ("report", True),
    OFF: ("off", True),
}
