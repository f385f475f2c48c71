r"""Things that add: the sums a learner keeps, apart from any estimate made of them.

What adds, and how exactly:

* **Counts** add exactly.
* :class:`Moments` and :class:`Information` are sums of float64 products. They add and subtract to
  rounding: any order, any split and any number of partitions give the same sums to about 1e-12 of
  their size, and removing what was added restores them to as much.
* :class:`Quadratic` log-likelihoods add in the same way, whatever θ each was taken at. Their sum
  is exact for Gaussian rewards. For others it is exact to second order around the θ of each: take
  all at one θ, add, and the maximum is one Newton step from there
  (:func:`belated.model.estimators.newton_step`).
* :class:`Observations` are a set of rows. Merging them loses nothing; a fit of the merged set is
  the fit of all rows, in whatever order they came. The oldest rows can be frozen: then they are a
  :class:`Quadratic` at the estimate of that time.
* **Estimates do not add.** Two partitions' :math:`\hat\theta` cannot be merged into that of their
  union (but for Gaussian rewards, where Moments hold all there is): merge the statistics, then fit.
* The **information of pending decisions**, :math:`\sum g'(\bar\eta_s)\,x_s x_s^\top/\varphi`, adds
  because the predicted :math:`\bar\eta_s` is frozen at the choice.
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
