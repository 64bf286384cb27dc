"""commitrelay: the transactional outbox for Python. Commit it, and it is delivered."""

__version__ = "0.1.0"
