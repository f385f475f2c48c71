"""``belated features``: preview how changed features affect a journal."""
