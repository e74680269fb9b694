package report

import "time"

// Hurry makes a Reporter report a hundred times a second.
func (r *Reporter) Hurry() { r.every = 10 * time.Millisecond }

// Note notes the result of a pipeline at a time.
func (r *Reporter) Note(err error, at time.Time) { r.note(err, at) }

// Bounds that tests reach.
const (
	MaxEntries       = maxEntries
	MaxFields        = maxFields
	MaxSnapshotBytes = maxSnapshotBytes
	MaxReplicas      = maxReplicas
)
