"""x."""
def f() -> int:
    """One."""
    return 1
