"""Registry: which adapter serves a URL, and what is said if none does."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from commitrelay import registry
from commitrelay.errors import ConfigError
from commitrelay.sql import Names


def test_sqlite_paths_are_relative_with_three_slashes_and_absolute_with_four(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for url, path in (
        ("sqlite:///relative.db", tmp_path / "relative.db"),
        (f"sqlite:///{tmp_path}/absolute.db", tmp_path / "absolute.db"),
    ):

        async def create(url: str = url) -> None:
            store = registry.database(url, Names())
            await store.initialise()
            await store.close()

        asyncio.run(create())
        assert path.exists()


@pytest.mark.parametrize("scheme", ["postgresql", "postgres", "POSTGRESQL"])
def test_both_names_of_postgresql(scheme: str) -> None:
    assert registry.dialect_of(f"{scheme}://host/db") == "postgres"


@pytest.mark.parametrize("scheme", ["mysql", "mariadb"])
def test_mysql_and_mariadb_are_one_adapter(scheme: str) -> None:
    assert registry.dialect_of(f"{scheme}://host/db") == "mysql"


def test_an_unknown_scheme_lists_the_known_ones() -> None:
    with pytest.raises(ConfigError, match=r"'kafak' \(did you mean kafka\?\).*file://.*stdout:"):
        registry.publisher("kafak://u:canary@h")
    with pytest.raises(ConfigError, match=r"postgresql://.*sqlite://"):
        registry.database("oracle://h", Names())


def test_no_scheme_at_all() -> None:
    with pytest.raises(ConfigError, match="is not a URL"):
        registry.database("/var/lib/shop.db", Names())
