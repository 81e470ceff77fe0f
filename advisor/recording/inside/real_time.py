"""The clocks of `time` before a program replaces them; each an object of its own, which freezegun does not find."""

import time
from functools import partial

monotonic, perf_counter, sleep = partial(time.monotonic), partial(time.perf_counter), partial(time.sleep)
perf_counter_ns, process_time_ns = partial(time.perf_counter_ns), partial(time.process_time_ns)
thread_time_ns = partial(time.thread_time_ns)
