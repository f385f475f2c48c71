"""The console: a page for people, with the reports of all bandits of a service."""
