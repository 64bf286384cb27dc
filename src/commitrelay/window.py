"""Window: the events that a relay has in hand, from claim to settlement. Pure.

Every event in hand is *held*: the next claim leaves it out. It is first *ready* (or waits
for its key's turn), then *flying* (at the broker), then written off by `settled`.

With `one_per_key`, at most one event of a key is ready or flying; the next one follows when
it has landed, while other keys flow past. Otherwise everything flows in the order of seq.

Four races are closed here, because claims overlap with settlements and read ahead:

* A key of which an event was passed over is skipped until the sweep starts again below that
  event, or a later one would overtake it: `skip`.
* A key that was refused is skipped until the refusal is in the database and a sweep begins
  after that: `refuse`, `settled`.
* What is settled within a sweep is left out until it ends: a sweep that reads from one snapshot
  sees it there to the end, and it would be delivered again, behind later ones of its key.
* After `clear` (the broker failed, the lease was lost) the claim under way is void.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable

from commitrelay.publisher import Message
from commitrelay.store import BUCKET, KEY, SEQ, ClaimRequest, Queued

Item = tuple[Queued, Message]
Key = int | str


class Window:
    def __init__(self, *, capacity: int, one_per_key: bool, key_limit: int) -> None:
        self._capacity = capacity
        self._one_per_key = one_per_key
        self._key_limit = key_limit
        self._ready: deque[Item] = deque()
        # one_per_key: the keys that are ready or flying, with what waits behind; mostly nothing
        self._followers: dict[Key, deque[Item] | None] = {}
        self._held: dict[int, int] = {}  # seq → bucket
        self._flying = 0
        self._refused: set[Key] = set()  # not yet settled
        self._skipped: set[Key] = set()
        self._floor = 0  # what the current sweep has read
        self._ceiling = 0  # the highest seq in hand when it began
        self._settled: set[int] = set()  # since then
        self._claiming = False
        self._claim_is_void = False

    # --- what is in hand ---------------------------------------------------------------

    def __len__(self) -> int:
        return len(self._held)

    @property
    def ready(self) -> int:
        return len(self._ready)

    @property
    def flying(self) -> int:
        return self._flying

    @property
    def skips(self) -> bool:
        """Whether events were passed over: there is more in the store than was claimed."""
        return bool(self._skipped)

    @property
    def skips_in_vain(self) -> bool:
        """Whether a key that is passed over could be taken in hand again."""
        return any(self._may_return(key) for key in self._skipped)

    def _may_return(self, key: Key) -> bool:
        few = len(self._followers.get(key) or ()) <= self._key_limit // 2
        return few and key not in self._refused

    @property
    def at_sweep_start(self) -> bool:
        return self._floor == 0

    @property
    def claim_is_void(self) -> bool:
        """Whether `clear` was called since the claim under way was requested."""
        return self._claim_is_void

    def has_room_for(self, count: int) -> bool:
        return len(self._held) + count <= self._capacity

    def buckets(self) -> Collection[int]:
        return set(self._held.values())

    # --- claim ----------------------------------------------------------------------------

    def request(self, limit: int, buckets: frozenset[int]) -> ClaimRequest:
        """What to claim next. From here to `accept`, a claim is under way."""
        self._claiming = True
        self._claim_is_void = False
        floor = self._floor
        if floor == 0:
            self._settled.clear()
        may_meet_held = floor == 0 or floor < self._ceiling
        known = (*self._held, *self._settled) if may_meet_held else ()
        return ClaimRequest(
            limit=limit,
            buckets=buckets,
            above_seq=floor,
            exclude_seqs=[seq for seq in known if seq > floor],
            exclude_keys=list(self._skipped),
        )

    def accept(self, items: Iterable[Item]) -> None:
        """Take the claimed events in hand."""
        self._claiming = False
        if self._claim_is_void:
            return
        if self._skipped:
            for item in items:
                self._accept_one(item)
        elif self._one_per_key:
            self._accept_heads(items)
        else:
            items = list(items)
            self._held.update([(row[SEQ], row[BUCKET]) for row, _message in items])
            self._ready.extend(items)

    def _accept_heads(self, items: Iterable[Item]) -> None:
        """The hot loop of `one_per_key`: most events are the only ones of their key in hand."""
        followers, held, ready = self._followers, self._held, self._ready.append
        for item in items:
            row = item[0]
            key = row[KEY]
            if key in followers:
                self._accept_one(item)
            else:
                followers[key] = None
                held[row[SEQ]] = row[BUCKET]
                ready(item)

    def raise_floor(self, seq: int) -> None:
        """The sweep has read everything up to `seq`."""
        self._floor = seq

    def end_sweep(self) -> None:
        """Start over from the lowest seq: late commits and skipped events are found again."""
        self._floor = 0
        self._ceiling = max(self._held, default=0)
        self._skipped = {key for key in self._skipped if not self._may_return(key)}

    def skip(self, key: Key) -> None:
        """An event of this key was read and not taken: leave the key to the next sweep."""
        self._skipped.add(key)

    def _accept_one(self, item: Item) -> None:
        row = item[0]
        key = row.key
        if key in self._skipped:
            return
        if not self._one_per_key:
            self._ready.append(item)
        elif key not in self._followers:
            self._followers[key] = None
            self._ready.append(item)
        elif (followers := self._followers[key]) is None:
            self._followers[key] = deque((item,))
        elif len(followers) < self._key_limit:
            followers.append(item)
        else:
            self._skipped.add(key)
            return
        self._held[row.seq] = row.bucket

    # --- publish --------------------------------------------------------------------------

    def take(self, limit: int) -> list[Item]:
        """The next events to send; they are flying from now on."""
        ready = self._ready
        count = min(limit, len(ready))
        if count == len(ready):
            batch = list(ready)
            ready.clear()
        else:
            batch = [ready.popleft() for _ in range(count)]
        self._flying += count
        return batch

    def landed(self, batch: Iterable[Item], count: int) -> None:
        """These are at the broker: the next events of their keys are ready."""
        self._flying -= count
        if not self._one_per_key:
            return
        followers_of = self._followers
        for row, _message in batch:
            key = row[KEY]
            followers = followers_of.get(key)
            if followers:
                self._ready.append(followers.popleft())
            else:
                followers_of.pop(key, None)

    def refuse(self, row: Queued, *, flying: bool) -> list[int]:
        """This one failed: its key stands still. The seqs that were waiting behind it."""
        self._flying -= flying
        key = row.key
        self._refused.add(key)
        self._skipped.add(key)
        self._held[row.seq] = row.bucket
        if not self._one_per_key:
            return []
        dropped = [item[0].seq for item in self._followers.pop(key, None) or ()]
        for seq in dropped:
            self._held.pop(seq, None)
        return dropped

    def come_back(self, count: int) -> None:
        """These were not sent after all; `clear` will forget them."""
        self._flying -= count

    # --- settle ---------------------------------------------------------------------------

    def settled(self, seqs: Collection[int], refused_keys: Collection[Key] = ()) -> None:
        """The store knows about these: they are out of hand."""
        held = self._held
        for seq in seqs:
            held.pop(seq, None)
        if self._floor < self._ceiling:
            self._settled.update(seqs)
        self._refused.difference_update(refused_keys)

    def clear(self) -> list[int]:
        """Forget all that is in hand (nothing may be flying); the seqs that were not sent."""
        forgotten = list(self._held)
        self._ready.clear()
        self._followers.clear()
        self._held.clear()
        self._refused.clear()
        self._skipped.clear()
        self._floor = 0
        self._flying = 0
        self._claim_is_void = self._claiming
        return forgotten
