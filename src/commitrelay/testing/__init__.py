"""Suites that adapters have to pass, for their authors; they need pytest."""

from commitrelay.testing.publisher_suite import OutageSuite, PublisherSuite, Received
from commitrelay.testing.source_suite import SourceOutageSuite, SourceSuite
from commitrelay.testing.store_suite import Scene, StoreHarness, StoreSuite, opened, scenario

__all__ = [
    "OutageSuite",
    "PublisherSuite",
    "Received",
    "Scene",
    "SourceOutageSuite",
    "SourceSuite",
    "StoreHarness",
    "StoreSuite",
    "opened",
    "scenario",
]
