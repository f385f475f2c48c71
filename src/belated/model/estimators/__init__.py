"""Estimators of θ.

* :class:`Ridge`: exact for Gaussian rewards, from their moments.
* :class:`Laplace`: any family, by Newton's method over all observations, each time they have grown
  by 5 %.
* :class:`Online`: any family, with a single step per observation, for streams too long to store.
* :class:`Thinned`: for conversions only; weights each decision by its age.
* :func:`newton_step`: from the summed statistics of several partitions.
"""

from belated.model.estimators.estimate import Estimate as Estimate, Estimator as Estimator
from belated.model.estimators.laplace import Laplace as Laplace, newton_step as newton_step
from belated.model.estimators.online import Online as Online
from belated.model.estimators.ridge import Ridge as Ridge
from belated.model.estimators.thinned import Thinned as Thinned
