"""The benchmark: cases in one table, timed beside the unfused library and a copy in one run."""
