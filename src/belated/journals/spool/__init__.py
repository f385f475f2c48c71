"""A journal that wraps another journal and stores events in a file while it is unavailable."""
