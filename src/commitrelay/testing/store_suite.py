"""StoreSuite: what every store has to pass.

Subclass it in a test module and give it a fixture `harness` that knows your database::

    class TestMyStore(StoreSuite):
        @pytest.fixture
        def harness(self): return MyHarness(…)  # a StoreHarness on an empty database

The cases adapt to the store's capabilities.
"""

from __future__ import annotations

from commitrelay.testing.store_cases.claiming import Claiming
from commitrelay.testing.store_cases.competing import Competing
from commitrelay.testing.store_cases.leasing import Leasing
from commitrelay.testing.store_cases.monitoring import Monitoring
from commitrelay.testing.store_cases.operating import Operating
from commitrelay.testing.store_cases.passing import Passing
from commitrelay.testing.store_cases.scene import Scene, StoreHarness, opened, scenario
from commitrelay.testing.store_cases.settling import Settling
from commitrelay.testing.store_cases.steering import Steering
from commitrelay.testing.store_cases.upkeep import Upkeep

__all__ = ["Scene", "StoreHarness", "StoreSuite", "opened", "scenario"]


class StoreSuite(
    Claiming,
    Settling,
    Leasing,
    Competing,
    Passing,
    Operating,
    Steering,
    Monitoring,
    Upkeep,
):
    """All cases, on the store that the fixture `harness` makes."""
