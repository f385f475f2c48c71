"""``belated features``: what a change of features does to a journal."""
