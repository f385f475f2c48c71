"""What a bandit is: written into its journal once, and compared whenever that is opened."""

from __future__ import annotations

from belated.exceptions import JournalMismatch
from belated.features import Features
from belated.journals.journal import Journal


def identify(journal: Journal, *, family: str, dim: int, features: Features | None = None) -> None:
    """Write into a new journal what its bandit is; refuse one that was made for another.

    Features that have grown are written anew.

    Args:
        journal: Journal of the bandit.
        family: Reward family, as its ``repr``.
        dim: Numbers in a row.
        features: What makes rows, if anything does.

    Raises:
        JournalMismatch: the journal was made for another family, width of rows or features.
    """
    mine = {
        "family": family,
        "dim": str(dim),
        "features": "" if features is None else features.fingerprint,
    }
    theirs = journal.identify(mine)
    if theirs == mine:
        return
    if theirs["family"] != mine["family"]:
        message = f"the journal was made for {theirs['family']}, not {mine['family']}"
        raise JournalMismatch(f"{message}: open it as it was made, or choose another journal")
    grown = features is not None and features.extends(theirs["features"])
    if not grown:
        what = (
            f"rows of {theirs['dim']} numbers, not {mine['dim']}"
            if theirs["dim"] != mine["dim"]
            else "other features"
        )
        message = f"the journal was made for {what}: open it as it was made"
        raise JournalMismatch(f"{message}, or choose another journal")
    journal.reidentify(mine)
