"""One bandit at one decider process: batch, choose, commit, answer; look up; spool."""
