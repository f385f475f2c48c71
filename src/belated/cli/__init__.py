"""The command line, as in ``belated journal inspect offers.db``: one file for each command."""
