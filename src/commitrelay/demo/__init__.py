"""The demo: an order service, its outbox, a relay, and a consumer that checks every event.

shop.py     writer threads: business transactions, some of which roll back
place.py    the database they work on; sqlite_place.py, postgres_place.py, … are the places
topic.py    what the relay fills and the consumer reads; file_topic.py, … by URL scheme
ledger.py   what was committed against what arrived: lost, twice, out of order
stage.py    puts them together, runs them, takes them down
view.py     what one sees meanwhile
"""
