"""Window: the events in hand. Who may start, who has to wait for his key, what may be acknowledged.

Pure bookkeeping, no I/O. Events of one key are started one after the other, in the order in which
they came; a partition's events are acknowledged in the order in which they came, without gaps.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterator

from commitrelay.errors import CommitrelayError
from commitrelay.format.read import Read
from commitrelay.source import Arrival

Key = tuple[str, str]


class Partition:
    """What is in hand of one partition, and how much its reader has to be on its guard."""

    __slots__ = (
        "careful", "doubtful", "entered", "entries", "forgotten", "name", "revoked", "running",
    )  # fmt: skip

    def __init__(self, name: str) -> None:
        self.name = name
        self.entries: deque[Entry] = deque()
        self.entered = False  # events are started only when it is known who read before
        self.revoked = False  # nothing more is started
        self.forgotten = False  # what ends now ends without a trace
        self.running = 0
        self.careful = False  # so many readers died here that each start is recorded first
        self.doubtful = 0  # events still to be handled until it is sure that none of them kills


class Entry:
    """One arrival in hand."""

    __slots__ = (
        "arrival", "burial", "conflicts", "done", "failures", "key", "partition", "read",
        "running", "stopped_by", "taken_at", "unreadable",
    )  # fmt: skip

    def __init__(
        self,
        arrival: Arrival,
        partition: Partition,
        read: Read | None,
        unreadable: CommitrelayError | None,
        taken_at: float,
    ) -> None:
        self.arrival = arrival
        self.partition = partition
        self.read = read
        self.unreadable = unreadable
        self.taken_at = taken_at
        self.key = _key(arrival, read)
        self.failures = 0
        self.conflicts = 0  # in a row: transactions that the database took back
        self.running = False
        self.done = False
        self.burial: BaseException | None = None  # why it is on its way to the dead letters
        self.stopped_by: BaseException | None = None  # why its key stands still


def _key(arrival: Arrival, read: Read | None) -> Key:
    if read is not None and read.aggregate_id:
        return read.aggregate_type, read.aggregate_id
    # Where nobody knows a key, the partition's order is kept.
    return f"\x00{arrival.partition}", arrival.key


class Window:
    def __init__(self, capacity: int, max_unacknowledged: int) -> None:
        self._capacity = capacity
        self._max_unacknowledged = max_unacknowledged
        self._partitions: dict[str, Partition] = {}
        self._keys: dict[Key, deque[Entry]] = {}
        self._ready: deque[Entry] = deque()
        self._touched: dict[Partition, None] = {}
        self._careful: set[Partition] = set()
        self.in_hand = 0  # not done yet
        self.unacknowledged = 0  # done, but something before is not
        self.running = 0

    @property
    def room(self) -> int:
        if self.unacknowledged >= self._max_unacknowledged:
            return 0
        return self._capacity - self.in_hand

    @property
    def entries(self) -> Iterator[Entry]:
        """All that are not done, of each partition in its order."""
        for partition in self._partitions.values():
            yield from (entry for entry in partition.entries if not entry.done)

    @property
    def partitions(self) -> Collection[Partition]:
        return self._partitions.values()

    # --- arrivals -------------------------------------------------------------------------

    def partition(self, name: str) -> tuple[Partition, bool]:
        """The partition of that name, and whether it is new."""
        found = self._partitions.get(name)
        if found is not None and not found.revoked:
            return found, False
        self._partitions[name] = new = Partition(name)
        return new, True

    def take(self, entry: Entry) -> None:
        entry.partition.entries.append(entry)
        queue = self._keys.setdefault(entry.key, deque())
        queue.append(entry)
        self.in_hand += 1
        if len(queue) == 1:
            self._make_ready(entry)

    def enter(self, partition: Partition, *, doubtful: bool, careful: bool) -> None:
        """It is known how the last reader of this partition ended: its events may be started."""
        partition.entered = True
        partition.doubtful = self._capacity if doubtful else 0
        partition.careful = careful
        if careful:
            self._careful.add(partition)
        for entry in partition.entries:
            if self._keys[entry.key][0] is entry:
                self._make_ready(entry)

    # --- starts and ends ------------------------------------------------------------------

    def start(self) -> Entry | None:
        """The next one to handle. While care is needed, one at a time, the suspects first."""
        if self._careful and self.running:
            return None
        entry = self._next()
        if entry is not None:
            entry.running = True
            entry.partition.running += 1
            self.running += 1
        return entry

    def _next(self) -> Entry | None:
        if not self._ready:
            return None
        for entry in self._ready if self._careful else ():
            if entry.partition.careful:
                self._ready.remove(entry)
                return entry
        return self._ready.popleft()

    def pause(self, entry: Entry) -> None:
        """It will be tried again; its key waits."""
        self._end(entry)
        if entry.partition.revoked:
            self._leave_key(entry)

    def resume(self, entry: Entry) -> None:
        """Its pause is over."""
        if not entry.partition.revoked:
            self._make_ready(entry)

    def finish(self, entry: Entry) -> None:
        """It is done; the next one of its key may start."""
        self._end(entry)
        entry.done = True
        entry.arrival = entry.arrival._replace(value=b"", headers=[])  # its position still counts
        entry.read = None
        if not entry.partition.forgotten:
            self.unacknowledged += 1
            self._touched[entry.partition] = None
        self._leave_key(entry)

    def _end(self, entry: Entry) -> None:
        entry.running = False
        entry.partition.running -= 1
        self.running -= 1

    def _leave_key(self, entry: Entry) -> None:
        self.in_hand -= 1
        queue = self._keys[entry.key]
        was_head = queue[0] is entry
        queue.remove(entry)
        if not queue:
            del self._keys[entry.key]
        elif was_head:
            self._make_ready(queue[0])

    def _make_ready(self, entry: Entry) -> None:
        if entry.partition.entered and not entry.partition.revoked:
            self._ready.append(entry)

    # --- doubt ----------------------------------------------------------------------------

    def trust(self, partition: Partition) -> bool:
        """One more doubtful event has ended; True if that was the last one."""
        if not partition.doubtful:
            return False
        partition.doubtful -= 1
        return not partition.doubtful and self._clear(partition)

    def trust_idle(self) -> list[Partition]:
        """Partitions in doubt where nothing is left to be started: nothing there kills."""
        waiting = {entry.partition for entry in self._ready}
        return [
            partition
            for partition in self._partitions.values()
            if partition.doubtful
            and not partition.revoked
            and not partition.running
            and partition not in waiting
            and self._clear(partition)
        ]

    def _clear(self, partition: Partition) -> bool:
        partition.doubtful = 0
        partition.careful = False
        self._careful.discard(partition)
        return True

    # --- acknowledgements and revocations -------------------------------------------------

    def take_done(self, partitions: Collection[Partition] | None = None) -> list[Arrival]:
        """What may be acknowledged now: all done events that nothing undone precedes."""
        arrivals: list[Arrival] = []
        for partition in [*self._touched] if partitions is None else partitions:
            self._touched.pop(partition, None)
            entries = partition.entries
            while entries and entries[0].done:
                arrivals.append(entries.popleft().arrival)
        self.unacknowledged -= len(arrivals)
        return arrivals

    def revoke(self, names: Collection[str]) -> list[Partition]:
        """Start nothing more of these partitions; what runs may still end."""
        revoked = [self._partitions[name] for name in names if name in self._partitions]
        for partition in revoked:
            partition.revoked = True
            self._careful.discard(partition)
            unstarted = [each for each in partition.entries if not each.done and not each.running]
            for entry in unstarted:
                self._drop(entry)
        return revoked

    def _drop(self, entry: Entry) -> None:
        if entry in self._ready:
            self._ready.remove(entry)
        self._leave_key(entry)

    def forget(self, partitions: Collection[Partition]) -> None:
        """What still runs of these partitions ends without a trace."""
        for partition in partitions:
            partition.forgotten = True
            self.unacknowledged -= sum(entry.done for entry in partition.entries)
            partition.entries.clear()
            self._touched.pop(partition, None)
            if self._partitions.get(partition.name) is partition:
                del self._partitions[partition.name]
