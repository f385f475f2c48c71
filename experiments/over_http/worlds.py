"""What is played over HTTP, and how fast."""

from __future__ import annotations

from belated import delays, environments

#: Rounds of a run, and seconds between two of them.
HORIZON, PACE = 4_000, 0.01
WORLDS = {"fixed": environments.fixed, "users": environments.users}
DELAYS = {"geo100": delays.Geometric(mean=100), "batch1000": delays.Batched(1000)}
#: Ways to run the same policy: within the process, and behind the service.
EMBEDDED, SERVED = "embedded", "over HTTP"
