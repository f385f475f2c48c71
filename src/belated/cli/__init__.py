"""The command line, as in ``belated serve belated.toml``: a folder for each group of commands."""
