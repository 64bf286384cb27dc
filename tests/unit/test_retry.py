from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from commitrelay.errors import ConfigError
from commitrelay.retry import Backoff, RetryPolicy


def test_the_first_attempt_is_free_and_each_delay_buys_one_more() -> None:
    policy = RetryPolicy(jitter=0)
    delays = [policy.delay_seconds(failed, Random(1)) for failed in range(1, 7)]
    assert delays == [1.0, 5.0, 30.0, 120.0, None, None]
    assert policy.max_attempts == 5


def test_without_delays_the_first_refusal_is_the_last() -> None:
    assert RetryPolicy(delays_seconds=()).delay_seconds(1, Random(1)) is None


@given(seed=st.integers(), jitter=st.floats(0, 1), failed=st.integers(1, 4))
def test_jitter_only_lengthens_a_delay_and_within_its_bound(
    seed: int, jitter: float, failed: int
) -> None:
    policy = RetryPolicy(jitter=jitter)
    delay = policy.delay_seconds(failed, Random(seed))
    exact = policy.delays_seconds[failed - 1]
    assert delay is not None
    assert exact <= delay <= exact * (1 + jitter)


@pytest.mark.parametrize("wrong", [{"delays_seconds": (-1.0,)}, {"jitter": 2.0}])
def test_nonsense_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ConfigError):
        RetryPolicy(**wrong)  # type: ignore[arg-type]


def test_backoff_doubles_up_to_its_limit_and_starts_again() -> None:
    backoff = Backoff(Random(1), first_seconds=1, most_seconds=5)
    pauses = [backoff.seconds() for _ in range(5)]
    for pause, exact in zip(pauses, (1, 2, 4, 5, 5), strict=True):
        assert 0.8 * exact <= pause <= 1.2 * exact
    backoff.reset()
    assert backoff.seconds() <= 1.2


def test_a_delay_is_as_long_as_the_broker_asks_at_least() -> None:
    policy = RetryPolicy((1.0, 5.0), jitter=0)
    assert policy.delay_seconds(1, Random(1), at_least_seconds=2.5) == 2.5
    assert policy.delay_seconds(2, Random(1), at_least_seconds=2.5) == 5.0
    assert policy.delay_seconds(3, Random(1), at_least_seconds=2.5) is None
