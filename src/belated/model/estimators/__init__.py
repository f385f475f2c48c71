"""Estimators of θ.

* :class:`Ridge` is exact for Gaussian rewards, and needs only their moments.
* :class:`Laplace` works for any family. It runs Newton's method over all observations each time
  their information has grown by 5 %.
* :class:`Online` works for any family. It takes a single step per observation, for streams that are
  too long to store.
* :class:`Thinned` is for data with conversions only. It weights each decision by the share of
  conversions expected by its age.
* :func:`newton_step` estimates θ from the summed statistics of several partitions.
"""

from belated.model.estimators.estimate import Estimate as Estimate, Estimator as Estimator
from belated.model.estimators.laplace import Laplace as Laplace, newton_step as newton_step
from belated.model.estimators.online import Online as Online
from belated.model.estimators.ridge import Ridge as Ridge
from belated.model.estimators.thinned import Thinned as Thinned
