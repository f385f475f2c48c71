"""What client and server send each other."""
