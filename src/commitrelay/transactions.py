"""Transactions: the port through which a consumer's handlers get a transaction to work in.

An adapter under `stores/` implements it for its database; an application may pass its own way to
begin a transaction instead, see `commitrelay.consumer.database`.
"""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager, AbstractContextManager
from typing import Any, Protocol


class Transactions(Protocol):
    """Makes transactions, each on a connection that nobody else uses meanwhile.

    A transaction commits at the end of its block and is rolled back if the block raises. The
    driver's errors are not translated: whoever runs a handler has to tell them apart.
    """

    @property
    def one_at_a_time(self) -> bool:
        """Whether a second transaction could only wait for the first one."""

    def begin(self) -> AbstractContextManager[Any]:
        """A transaction on the driver's synchronous connection; to be used in a thread."""

    def begin_async(self) -> AbstractAsyncContextManager[Any]:
        """A transaction on the driver's asynchronous connection."""

    async def close(self) -> None:
        """Close what is idle; what is in use is closed when it is given back."""
