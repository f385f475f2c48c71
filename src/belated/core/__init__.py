"""What all rooms share: events, ids, times, the meaning of rewards, and checks of what comes in."""
