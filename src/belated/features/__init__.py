"""From records to rows: one row of numbers for each action that is offered.

* :class:`Shared`: one θ for all actions, which have numbers of their own.
* :class:`PerArm`: each action its own block of θ; actions may be added later.
* :class:`Hashed`: records of any names and values, hashed into a fixed number of columns.
* :class:`FromTransform`: any object with scikit-learn's ``transform``.

:class:`PerArm` and :class:`Shared` encode the fields of a record: :class:`Number` scales,
:class:`Category` is one-hot, :class:`Flag` is ±½, :class:`Datetime` puts hour and weekday on a
circle, :class:`Vector` takes an embedding, :class:`Text` hashes words. :class:`RandomFeatures` adds
random waves of its fields. ``fit`` takes ranges and values from a sample.

A **context** is a mapping of names to values; or None where there is none.
Where columns are numbers in a known order it may also be a plain sequence or array of numbers.
**Actions** are a list of ids (text or whole numbers), or a mapping of ids to records where actions
have features of their own. Each call may offer others. Rows come in the order offered.

Without an encoder a boolean counts as the number 0 or 1, and what is missing is refused; an encoder
accepts None. A name that is needed and not there is refused in any case. Names that no column asks
for are ignored: a record carries more than one model uses, and a field can be sent before the
features that read it are deployed, and after they are gone. A typo is not lost by this, as the name
that was meant is then missing. (:class:`Hashed` reads every name, and needs none.)

Rows mean the same where the ``fingerprint`` is the same. It is a digest of what the features were
made of, and depends neither on the process nor on the version of Python.
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
