from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.distributed.forked_ranks import Starter, starter
from tests.distributed.test_same_bits import ENVIRONMENT


@pytest.fixture(scope="session")
def one_starter() -> Iterator[Starter]:
    with starter(ENVIRONMENT) as found:
        yield found


@pytest.fixture
def forked(one_starter: Starter) -> Iterator[Starter]:
    """Starts ranks in a tenth of the time that new Python processes take."""
    yield one_starter
    one_starter.end()
