"""The console: a web page with the reports of all bandits of a service."""
