r"""Additive statistics: the sums that a learner maintains, independent of estimates.

The statistics of partitions are combined as follows:

* **Counts** add exactly.
* :class:`Moments` and :class:`Information` are sums of float64 products, which can be added and
  subtracted with a relative error of about 1e-12. The sums do not depend on the order of rows or on
  how they are divided among partitions.
* :class:`Quadratic` log-likelihoods add in the same way, even if they were expanded at different θ.
  Their sum is exact for Gaussian rewards. For other rewards it is exact to second order around each
  θ; if all are expanded at the same θ, the maximum of their sum is one Newton step from that θ
  (:func:`belated.model.estimators.newton_step`).
* :class:`Observations` are a set of rows. Merging two sets is lossless: a fit of the merged set is
  a fit of all rows, in any order. The oldest rows can be frozen, which replaces them with a
  :class:`Quadratic` at the current estimate.
* **Estimates do not add.** The :math:`\hat\theta` of two partitions cannot be combined into the
  estimate for their union (except for Gaussian rewards, for which Moments are sufficient). Merge
  the statistics, then fit.
* The **information of pending decisions**, :math:`\sum g'(\bar\eta_s)\,x_s x_s^\top/\varphi`, adds
  because the predicted :math:`\bar\eta_s` is fixed when the action is chosen.
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
