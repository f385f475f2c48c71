"""Features: encode a context and the offered actions as rows of numbers, one row per action.

* :class:`Shared`: one θ for all actions; each action is described by its own features.
* :class:`PerArm`: a separate block of θ for each action; actions can be added later.
* :class:`Hashed`: records with arbitrary names and values, hashed into a fixed number of columns.
* :class:`FromTransform`: any object with scikit-learn's ``transform``.

:class:`PerArm` and :class:`Shared` encode the fields of a record: :class:`Number` scales a number,
:class:`Category` one-hot encodes a value, :class:`Flag` maps a boolean to ±½, :class:`Datetime`
maps the hour and the weekday to points on a circle, :class:`Vector` accepts an embedding, and
:class:`Text` hashes words. :class:`RandomFeatures` adds random Fourier features of its fields.
``fit`` derives ranges and categories from a sample.

A **context** is a mapping of names to values, or None if there is no context. If the columns are
numbers in a known order, the context can also be a sequence or an array of numbers. **Actions** are
a list of ids (text or whole numbers), or a mapping of ids to records if actions have their own
features. Each call may offer different actions. Rows are in the order of the actions.

Without an encoder, a boolean counts as the number 0 or 1, and a missing value is an error; an
encoder accepts None. A missing name is always an error if a column requires it. Names that no
column reads are ignored, because records often contain more than a model uses. A field can
therefore be sent before the features that read it are deployed, and after they are removed. A
misspelled name is still detected, because the correct name is then missing. (:class:`Hashed` reads
every name, and requires none.)

Two sets of features encode rows with the same meaning if and only if they have the same
``fingerprint``, a digest of their settings that does not depend on the process or the version of
Python.
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
