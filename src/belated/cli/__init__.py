"""The command line, such as ``belated serve belated.toml``: one module per command."""
