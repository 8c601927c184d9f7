"""Benchmarks against other libraries: ``make bench``, or ``make bench ARGS=peers`` for one."""
