"""Who may do what: API keys and reward tokens."""
