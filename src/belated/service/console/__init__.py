"""The console: a web page that shows the reports of all bandits on a service."""
