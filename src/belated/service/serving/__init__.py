"""Serving bandits in a decider process: batching, choosing, committing, look-ups and spooling."""
