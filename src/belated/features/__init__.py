"""Features: encode a context and the actions on offer as rows of numbers, one row per action.

* :class:`Shared`: one θ for all actions, which are described by features of their own.
* :class:`PerArm`: a separate block of θ for each action; actions can be added later.
* :class:`Hashed`: records with arbitrary names and values, hashed into a fixed number of columns.
* :class:`FromTransform`: any object with scikit-learn's ``transform``.

:class:`PerArm` and :class:`Shared` encode the fields of a record: :class:`Number` scales,
:class:`Category` is one-hot, :class:`Flag` is ±½, :class:`Datetime` maps hour and weekday to a
circle, :class:`Vector` accepts an embedding, :class:`Text` hashes words. :class:`RandomFeatures`
adds random Fourier features of its fields. ``fit`` derives ranges and categories from a sample.

A **context** is a mapping of names to values, or None if there is none. If the columns are numbers
in a known order, it can also be a sequence or an array of numbers. **Actions** are a list of ids
(text or whole numbers), or a mapping of ids to records if actions have features of their own. Each
call may offer different actions. Rows are in the order of the actions.

Without an encoder, a boolean counts as the number 0 or 1, and a missing value is an error; an
encoder accepts None. A required name that is absent is always an error. Names that no column reads
are ignored: records often contain more than one model uses, and a field can be sent before the
features that read it are deployed, and after they are removed. A typo is still noticed, because the
intended name is then absent. (:class:`Hashed` reads every name, and requires none.)

Rows have the same meaning if and only if features have the same ``fingerprint``. It is a digest of
the settings of the features, and independent of the process and the version of Python.
"""

from belated.features.encoders import Category, Datetime, Flag, Number, RandomFeatures, Text, Vector
from belated.features.hashed import Hashed
from belated.features.per_arm import PerArm
from belated.features.protocol import Features
from belated.features.records import Actions, Context
from belated.features.shared import Shared
from belated.features.transform import FromTransform

__all__ = [
    "Actions",
    "Category",
    "Context",
    "Datetime",
    "Features",
    "Flag",
    "FromTransform",
    "Hashed",
    "Number",
    "PerArm",
    "RandomFeatures",
    "Shared",
    "Text",
    "Vector",
]
