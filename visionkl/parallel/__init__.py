"""Work spread over processes, and data kept in memory-mapped shards."""
