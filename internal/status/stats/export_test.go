package stats

// DecodeFlushed is decodeFlushed, for tests.
var DecodeFlushed = decodeFlushed
