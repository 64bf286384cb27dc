"""Databases for the direct pass: both that have one."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.direct.scene import Database


@pytest.fixture(params=["postgres", "sqlite"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Database:
    if request.param == "sqlite":
        return Database(f"sqlite:///{tmp_path / 'outbox.db'}")
    return Database(request.getfixturevalue("postgres_database"))


@pytest.fixture
def postgres(postgres_database: str) -> Database:
    return Database(postgres_database)


@pytest.fixture
def topics(tmp_path: Path) -> Path:
    return tmp_path / "topics"
