"""Metrics: what Prometheus reads."""

from __future__ import annotations

from commitrelay.metrics import Counter, Gauge, Histogram, exposition


def test_the_text_is_what_prometheus_reads() -> None:
    counter = Counter("c_total", "Counts\\things\nof all kinds.", ("lane",))
    counter.add(2, 'a"b\\c\nd')
    gauge = Gauge("g", "Is.")
    gauge.set(0.5)
    histogram = Histogram("h", "Spreads.", ("lane",), bounds=(0.5, 1))
    for value in (0.25, 0.5, 0.75, 7):
        histogram.observe(value, "x")
    assert exposition([counter, gauge, histogram]).splitlines() == [
        "# HELP c_total Counts\\\\things\\nof all kinds.",
        "# TYPE c_total counter",
        'c_total{lane="a\\"b\\\\c\\nd"} 2',
        "# HELP g Is.",
        "# TYPE g gauge",
        "g 0.5",
        "# HELP h Spreads.",
        "# TYPE h histogram",
        'h_bucket{lane="x",le="0.5"} 2',
        'h_bucket{lane="x",le="1"} 3',
        'h_bucket{lane="x",le="+Inf"} 4',
        'h_sum{lane="x"} 8.5',
        'h_count{lane="x"} 4',
    ]


def test_many_at_a_time() -> None:
    histogram = Histogram("h", "", bounds=(1, 2))
    histogram.observe(0.5)
    histogram.observe_counts([3, 3, 7], 100.0)
    assert list(histogram.lines()) == [
        'h_bucket{le="1"} 4',
        'h_bucket{le="2"} 4',
        'h_bucket{le="+Inf"} 8',
        "h_sum 100.5",
        "h_count 8",
    ]


def test_a_series_is_shown_before_it_was_observed() -> None:
    histogram = Histogram("h", "", ("lane",), bounds=(1,))
    histogram.touch("x")
    assert 'h_count{lane="x"} 0' in list(histogram.lines())
