"""Access control: API keys, reward tokens and CORS."""
