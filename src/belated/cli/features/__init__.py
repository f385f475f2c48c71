"""``belated features``: preview the effects of changed features on a journal."""
