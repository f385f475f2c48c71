"""Serving bandits in a decider process: batching, choosing, committing, lookups and spooling."""
