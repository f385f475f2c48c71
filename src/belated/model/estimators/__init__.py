"""From statistics to an estimate of θ.

* :class:`Ridge`: Gaussian rewards, exactly, from their moments alone.
* :class:`Laplace`: any family, by Newton's method over all observations; lazily, when they have
  grown by 5 %.
* :class:`Online`: any family, one step per observation and never again; for when observations are
  too many to keep.
* :class:`Thinned`: where only conversions are reported; each decision by its age.
* :func:`newton_step`: from sums that partitions add up to.
"""

from belated.model.estimators.estimate import Estimate as Estimate, Estimator as Estimator
from belated.model.estimators.laplace import Laplace as Laplace, newton_step as newton_step
from belated.model.estimators.online import Online as Online
from belated.model.estimators.ridge import Ridge as Ridge
from belated.model.estimators.thinned import Thinned as Thinned
