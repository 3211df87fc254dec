"""The verifier against claims that are true and claims that are made up, seeded from own streams.

`make eval-agent` prints the figures by kind.
"""

from __future__ import annotations

import pytest

from made_up_claims import CAUGHT, REFUSED, Ground, figures, made_grounds, weighed


@pytest.fixture(scope="module")
def grounds() -> list[Ground]:
    """Return an incident of one faulty stream of each family."""
    return made_grounds()


def test_made_up_claims_are_caught_and_true_ones_are_not_refused(grounds: list[Ground]) -> None:
    true, false = weighed(grounds)
    found = figures(true, false)

    assert found["made_up"] >= 500
    assert found["true"] >= 500
    assert found["caught"] >= CAUGHT, false.missed[:20]
    assert found["refused"] <= REFUSED, true.missed[:20]
    assert all(false.caught[kind] >= 0.8 * false.all[kind] for kind in false.all), false.missed[:20]
