"""What every other package shares: events, ids, times, reward semantics and input validation."""
