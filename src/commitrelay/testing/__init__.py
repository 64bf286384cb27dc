"""Suites that adapters have to pass, for their authors; they need pytest."""

from commitrelay.testing.store_suite import Scene, StoreHarness, StoreSuite, opened, scenario

__all__ = ["Scene", "StoreHarness", "StoreSuite", "opened", "scenario"]
