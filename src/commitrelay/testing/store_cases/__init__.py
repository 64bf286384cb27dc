"""The cases of `commitrelay.testing.StoreSuite`, by what they are about."""
