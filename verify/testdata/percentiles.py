"""Makes percentiles.json: percentiles by numpy's default method, for the
vectors that metrics_test.go holds Percentile against.

    pip install numpy && python3 percentiles.py > percentiles.json

Made with numpy 2.4.6. Values are whole numbers of ns, small enough for numpy's
float64 to hold each of them.
"""

import json
import sys

import numpy

random = numpy.random.default_rng(20261130)
vectors = []
for n in [1, 2, 3, 4, 5, 6, 7, 10, 12, 18, 20, 21, 24, 99, 100, 101, 250]:
    for most in [3, 1000, 70_000_000, 3_600_000_000_000]:
        values = [int(v) for v in random.integers(0, most, size=n)]
        percentiles = {str(p): float(numpy.percentile(values, p)) for p in [0, 1, 5, 25, 37, 50, 75, 90, 95, 99, 100]}
        vectors.append({"values": values, "percentiles": percentiles})
json.dump(vectors, sys.stdout, separators=(",", ":"))
print()
