"""What this program costs beside its peers: ratios of one interleaved run, never a test on time."""
