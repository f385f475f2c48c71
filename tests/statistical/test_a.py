from tests.statistical.polya_gamma import f


def test_a() -> None:
    """One."""
    assert f() == 1
