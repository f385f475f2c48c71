"""The command line, as in ``belated serve belated.toml``: one file for each command."""
