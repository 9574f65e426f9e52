"""The reader process: turns logs into bounded records, away from the process that serves HTTP."""
