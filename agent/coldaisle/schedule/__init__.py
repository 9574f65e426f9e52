"""When things run: the monotonic tick for sampling, APScheduler for slow jobs."""
