import pickle

import pytest

from belated import exceptions
from belated.exceptions import (
    BelatedError,
    BelatedWarning,
    ConvergenceWarning,
    CorruptEvent,
    CorruptJournal,
    HistoryChanged,
    HistoryWarning,
    InvalidInput,
    JournalClosed,
    JournalMismatch,
    JournalUnavailable,
    MissingExtra,
    NotAJournal,
    OwnerFenced,
    ScaleWarning,
    SnapshotConflict,
    SnapshotWarning,
    UnknownEvent,
    UnknownHandle,
    UnsupportedFormat,
)

TREE: dict[type[BelatedError], type[Exception]] = {
    InvalidInput: ValueError,
    UnknownEvent: ValueError,
    CorruptEvent: ValueError,
    UnknownHandle: LookupError,
    MissingExtra: ImportError,
    JournalClosed: ValueError,
    JournalUnavailable: OSError,
    JournalMismatch: ValueError,
    NotAJournal: ValueError,
    UnsupportedFormat: ValueError,
    CorruptJournal: ValueError,
    HistoryChanged: RuntimeError,
    OwnerFenced: RuntimeError,
    SnapshotConflict: LookupError,
}


@pytest.mark.parametrize(("error", "builtin"), TREE.items(), ids=lambda kind: kind.__name__)
def test_every_error_is_also_the_builtin_a_reader_expects(
    error: type[BelatedError], builtin: type[Exception]
) -> None:
    """``except ValueError`` catches what ``except BelatedError`` catches."""
    assert issubclass(error, BelatedError)
    assert issubclass(error, builtin)


@pytest.mark.parametrize(
    "warning", [ConvergenceWarning, HistoryWarning, ScaleWarning, SnapshotWarning]
)
def test_every_warning_is_a_user_warning(warning: type[Warning]) -> None:
    """The library's warnings hang under one root below UserWarning."""
    assert issubclass(warning, BelatedWarning)
    assert issubclass(warning, UserWarning)
    assert not issubclass(warning, BelatedError)


def test_the_drawn_tree_names_every_class() -> None:
    """The module's docstring shows each error and warning it defines."""
    assert exceptions.__doc__ is not None
    roots = (BelatedError, BelatedWarning)
    defined = {
        name
        for name, kind in vars(exceptions).items()
        if isinstance(kind, type) and issubclass(kind, roots)
    }
    assert {kind.__name__ for kind in TREE} < defined
    for name in defined:
        assert name in exceptions.__doc__


def test_invalid_input_carries_the_value_itself() -> None:
    """The offending object is kept, not a copy or its text."""
    value = object()
    error = InvalidInput("refused", value)
    assert error.value is value
    assert str(error) == "refused"


def test_unknown_event_carries_version_and_kind() -> None:
    """A reader can tell which release could read it; the message names the number."""
    error = UnknownEvent(9)
    assert (error.version, error.kind) == (9, None)
    assert "9" in str(error)
    kind = UnknownEvent(1, 77)
    assert (kind.version, kind.kind) == (1, 77)
    assert "77" in str(kind)


def test_unknown_handle_carries_the_handle() -> None:
    """The handle that was asked for is in the error and in its message."""
    error = UnknownHandle(65_537)
    assert error.handle == 65_537
    assert "65537" in str(error)


def test_missing_extra_names_the_pip_command() -> None:
    """The message can be pasted into a shell."""
    error = MissingExtra("compiling the kernels", "fast")
    assert error.extra == "fast"
    assert "pip install 'belated[fast]'" in str(error)


@pytest.mark.parametrize(
    "error",
    [
        InvalidInput("refused", 3.5),
        UnknownEvent(2),
        UnknownEvent(1, 9),
        CorruptEvent("cut off"),
        UnknownHandle(7),
        MissingExtra("compiling", "fast"),
        JournalUnavailable("locked"),
        SnapshotConflict({"b", "a"}),
        HistoryChanged(3, 7),
    ],
    ids=lambda error: type(error).__name__,
)
def test_an_error_survives_pickling(error: BelatedError) -> None:
    """An error raised in a worker process arrives with its message and what it carries."""
    unpickled = pickle.loads(pickle.dumps(error))
    assert type(unpickled) is type(error)
    assert str(unpickled) == str(error)
    assert vars(unpickled) == vars(error)
