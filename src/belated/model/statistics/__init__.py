r"""Additive statistics: the sums that a learner keeps, independent of estimates.

How the statistics of partitions are combined:

* **Counts** add exactly.
* :class:`Moments` and :class:`Information` are sums of float64 products. They add and subtract up
  to rounding: any order, any split and any number of partitions give the same sums to a relative
  error of about 1e-12, and so does subtracting what was added.
* :class:`Quadratic` log-likelihoods add in the same way, even if they were expanded at different θ.
  Their sum is exact for Gaussian rewards. For others it is exact to second order around each θ: if
  all are expanded at one θ, the maximum of their sum is one Newton step from it
  (:func:`belated.model.estimators.newton_step`).
* :class:`Observations` are a set of rows. Merging them is lossless, and a fit of the merged set is
  the fit of all rows, in any order. The oldest rows can be frozen: they are then a
  :class:`Quadratic` at the estimate of that time.
* **Estimates do not add.** The :math:`\hat\theta` of two partitions cannot be merged into that of
  their union (except for Gaussian rewards, for which Moments are sufficient): merge the statistics,
  then fit.
* The **information of pending decisions**, :math:`\sum g'(\bar\eta_s)\,x_s x_s^\top/\varphi`, adds
  because the predicted :math:`\bar\eta_s` is fixed at the choice.
"""

from belated.model.statistics.joined import (
    Joined as Joined,
    Seen as Seen,
    quadratic_at as quadratic_at,
)
from belated.model.statistics.observations import Observations as Observations
from belated.model.statistics.running import RunningSums as RunningSums
from belated.model.statistics.sums import (
    FrozenSums as FrozenSums,
    Information as Information,
    Moments as Moments,
    Quadratic as Quadratic,
)
