"""The costs of teamd compared with its peers, in interleaved runs; never a test on time."""
