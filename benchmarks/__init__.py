"""Benchmarks and the checks that go with them: `make bench`, `python3 -m benchmarks.run --help`; findings in NOTES.md."""
