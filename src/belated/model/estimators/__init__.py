"""From statistics to an estimate of θ.

* :class:`Ridge`: Gaussian rewards, exactly, from their moments alone.
* :class:`Laplace`: any family, by Newton's method over all observations; lazily, when they have
  grown by 5 %.
* :class:`Online`: any family, one step per observation and never again; for when observations are
  too many to keep.
* :class:`Thinned`: where only conversions are reported; each decision by its age.
* :func:`newton_step`: from sums that partitions add up to.
"""

from belated.model.estimators.estimate import Estimate, Estimator
from belated.model.estimators.laplace import Laplace, newton_step
from belated.model.estimators.online import Online
from belated.model.estimators.ridge import Ridge
from belated.model.estimators.thinned import Thinned

__all__ = ["Estimate", "Estimator", "Laplace", "Online", "Ridge", "Thinned", "newton_step"]
