"""The fault simulator: the real library under a simulated clock, store and network.

One seed draws the settings of a run, the mix of its faults, and everything that happens. First
anything may fail; then everything heals, and all bandits must agree: with each other, with a replay
of the journal, and with the plain rules of :class:`~belated.testing.Oracle`.

::

    python -m belated.testing.simulator 17                      # one run, line by line
    python -m belated.testing.simulator --seeds 10000 --jobs 2  # many, and a table of faults

A run (``runs``) is a cluster: processes with a bandit each (``cluster``, ``processes``), or the
service (``service_cluster``, ``servers``) on hosts in virtual time (``host``, ``loop``). Clients
(``clients``) ask them over a network (``network``); writers look at nothing (``writers``), or write
to the microsecond (``boundaries``). All use one store (``store``, ``service_store``), each through
a session (``session``), and some a disk of their own (``disk``). What may go wrong stands in
``faults``, what must hold in ``checks``.

>>> result = run(7)
>>> result.records > 0
True
"""

from belated.testing.simulator.checks import Disagreement
from belated.testing.simulator.faults import FAULTS
from belated.testing.simulator.runs import Result, run
from belated.testing.simulator.sweep import Sweep, sweep

__all__ = ["FAULTS", "Disagreement", "Result", "Sweep", "run", "sweep"]
