"""Consumer: the other half. Reads from a broker, handles each event once in effect.

consumer.py      what users see: handlers, run, stop, health
engine.py        read → handle → acknowledge (read it first)
window.py        events in hand: order per key, acknowledgement by prefix
database.py      one transaction for an event, its mark and its effect
marks.py         what is left in the database in case that the process dies
dead_letters.py  where events go that nobody could handle
handlers.py, payload.py, received.py, options.py, trouble.py, metrics.py
"""

from commitrelay.consumer.consumer import Consumer
from commitrelay.consumer.metrics import prometheus
from commitrelay.consumer.options import ConsumerOptions, ConsumerStats, Health, StoppedKey
from commitrelay.consumer.received import Received

__all__ = [
    "Consumer",
    "ConsumerOptions",
    "ConsumerStats",
    "Health",
    "Received",
    "StoppedKey",
    "prometheus",
]
