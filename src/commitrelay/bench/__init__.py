"""The benchmark: the relay beside a bare loop, on the user's own database and broker.

`suite.py` is where to begin. What is measured runs in processes of its own (`worker.py`), so that
their CPU time and memory are theirs alone.
"""
